// What parity.py computes natively, computed by azq.wasm: in Node (a JSON list of cases on stdin, what is found on stdout) and in a page.

const SPREAD = 4
const encoder = new TextEncoder()

export function evaluator(actions, values) {
  const mix = (x) => {
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d)
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b)
    return (x ^ (x >>> 16)) >>> 0
  }
  return (packed, leaves) => {
    const width = packed.length / leaves
    const logits = new Float32Array(leaves * actions)
    const each = new Float32Array(leaves * values)
    for (let leaf = 0; leaf < leaves; leaf++) {
      let key = 0x811c9dc5
      for (let i = leaf * width; i < (leaf + 1) * width; i++) key = Math.imul(key ^ packed[i], 0x01000193)
      const number = (i) => (mix((key + Math.imul(i, 0x9e3779b9)) | 0) >>> 8) / 8388608 - 1
      for (let i = 0; i < actions; i++) logits[leaf * actions + i] = SPREAD * number(i)
      for (let i = 0; i < values; i++) each[leaf * values + i] = number(actions + i)
    }
    return [logits, each]
  }
}

class Digest {
  parts = []

  add(...items) {
    for (const item of items) {
      if (typeof item === "string") this.parts.push(encoder.encode(item))
      else if (ArrayBuffer.isView(item)) this.parts.push(new Uint8Array(item.buffer, item.byteOffset, item.byteLength).slice())
      else this.parts.push(new Uint8Array(Int32Array.of(item).buffer))
    }
  }

  async value() {
    const whole = new Uint8Array(this.parts.reduce((sum, part) => sum + part.length, 0))
    this.parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0)
    return new Uint8Array(await crypto.subtle.digest("SHA-256", whole))
  }
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")

// Games whose actions a formula chooses: all that can be asked of a position.
async function positions(game, { games }) {
  const whole = new Digest()
  for (let uid = 0; uid < games; uid++) {
    const digest = new Digest()
    const state = game.initialState()
    for (let ply = 0; state.actor() !== -4; ply++) {
      const legal = state.legal()
      digest.add(state.actor(), Int32Array.from(legal), state.notation())
      const outcomes = state.chance()
      digest.add(Float32Array.from(outcomes.map(({ probability }) => probability)))
      for (let player = 0; player < game.numPlayers; player++) digest.add(state.observe(player))
      if (ply % 8 === uid % 8) {
        digest.add(state.text(), ...legal.map((action) => state.actionText(action)))
        const other = state.resample(uid % game.numPlayers, BigInt(uid))
        digest.add(state.informationState(uid % game.numPlayers), other.notation())
        other.free()
      }
      state.apply(legal[(7 * ply + 3 * uid + (uid >> 3) * ply) % legal.length])
    }
    digest.add(state.notation(), Float32Array.from(state.returns()))
    state.free()
    whole.add(await digest.value())
  }
  return hex(await whole.value())
}

function step(search, evaluate, version) {
  const leaves = search.collect()
  if (leaves > 0) search.apply(...evaluate(search.packed(), leaves), version)
  return leaves
}

// Games of self-play: their records, byte by byte.
async function records(game, { settings, games, slots }) {
  const search = game.search(settings, { slots, seed: 2026n })
  const evaluate = evaluator(game.numActions, game.valueSize)
  const found = []
  let next = 0
  for (let slot = 0; slot < slots && next < games; slot++) search.start(slot, { uid: BigInt(next++) })
  for (let turn = 1; found.filter(Boolean).length < games; turn++) {
    step(search, evaluate, turn % 5)
    for (let slot = 0; slot < slots; slot++) {
      if (search.status(slot) !== "finished") continue
      const { uid, actions, policies, rootValues, simulations, weightVersions, returns } = search.record(slot)
      const digest = new Digest()
      digest.add(actions, policies, rootValues, simulations, weightVersions, Float32Array.from(returns))
      found[Number(uid)] = await digest.value()
      search.clear(slot)
      if (next < games) search.start(slot, { uid: BigInt(next++) })
    }
  }
  search.free()
  const whole = new Digest()
  whole.add(...found)
  return hex(await whole.value())
}

// Searches played step by step: all that is known of a root, and the tree under it.
async function roots(game, { settings, games }) {
  const whole = new Digest()
  const search = game.search(settings, { slots: 1, seed: 2026n, autoplay: false })
  const evaluate = evaluator(game.numActions, game.valueSize)
  for (let uid = 0; uid < games; uid++) {
    const digest = new Digest()
    search.start(0, { uid: BigInt(uid) })
    for (let ply = 0; search.status(0) !== "finished" && ply < 60; ply++) {
      while (step(search, evaluate, 7) > 0);
      if (search.status(0) === "chance") {
        const state = search.state(0)
        const outcomes = state.legal()
        state.free()
        search.play(0, outcomes[(7 * ply + uid) % outcomes.length])
        continue
      }
      const root = search.result(0)
      digest.add(root.action, root.bestAction, Number(root.proven), Float32Array.of(root.rootValue))
      digest.add(root.policy, root.visitCounts, root.qValues, root.priorLogits)
      const tree = search.tree(0)
      for (const name of ["parent", "action", "actor", "visits", "rawValue", "mean", "lower", "upper", "childVisits", "prior", "q"]) digest.add(tree[name])
      search.play(0, root.action)
    }
    whole.add(await digest.value())
  }
  search.free()
  return hex(await whole.value())
}

// The evaluator of the committed trees: splitmix64 over the observation.
function hashed(actions, values) {
  const word = (x) => BigInt.asUintN(64, x)
  const mix = (x) => {
    x = word((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n)
    x = word((x ^ (x >> 27n)) * 0x94d049bb133111ebn)
    return x ^ (x >> 31n)
  }
  return (packed, leaves) => {
    const width = packed.length / leaves
    const rows = Array.from({ length: leaves }, (_, leaf) => {
      const key = packed.subarray(leaf * width, (leaf + 1) * width).reduce((key, byte) => mix(key ^ BigInt(byte)), 0x9e3779b97f4a7c15n + 11n)
      return Float32Array.from({ length: actions + values }, (_, i) => Number(mix(word(key + BigInt(i))) >> 48n) / 32768 - 1)
    })
    const logits = rows.flatMap((row) => [...row.subarray(0, actions)].map((number) => 2 * number))
    return [Float32Array.from(logits), Float32Array.from(rows.flatMap((row) => [...row.subarray(actions)]))]
  }
}

// A committed tree: of its position, or without chance after its search, one reply and the search after that.
function tree(game, { settings, actions, sampled }) {
  const search = game.search(settings, { slots: 1, seed: 2026n, autoplay: false })
  const evaluate = hashed(game.numActions, game.valueSize)
  const run = () => {
    while (step(search, evaluate, 7) > 0);
  }
  if (sampled) {
    const state = game.initialState()
    for (const action of actions) state.apply(action)
    search.startAt(0, 123n, state)
    state.free()
  } else {
    search.start(0, { uid: 123n, actions: Uint16Array.from(actions) })
    run()
    search.play(0, search.result(0).action)
  }
  run()
  const found = Object.entries(search.tree(0)).map(([name, numbers]) => [
    name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase()),
    [...numbers].map((number) => (Number.isNaN(number) ? null : number)),
  ])
  search.free()
  return Object.fromEntries(found)
}

const KINDS = { positions, records, roots, tree }

/** By name what is found: digests, and trees as they are. */
export async function compute(core, cases) {
  const found = {}
  for (const { name, game, params, kind, ...rest } of cases) {
    const rules = core.game(game, params)
    found[name] = await KINDS[kind](rules, rest)
  }
  return found
}

if (typeof process !== "undefined" && process.argv[1]?.endsWith("parity.mjs")) {
  const { readFileSync } = await import("node:fs")
  const { loadCore } = await import(process.argv[2] + "/core.js")
  const core = await loadCore(readFileSync(process.argv[2] + "/azq.wasm"))
  console.log(JSON.stringify(await compute(core, JSON.parse(readFileSync(0, "utf8")))))
}
