// Checks of azq/web/core.js in Node: node core_checks.mjs WEB < the search's settings; prints the names of the checks that passed.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"

const { loadCore } = await import(process.argv[2] + "/core.js")
const { settings, halves } = JSON.parse(readFileSync(0, "utf8"))
const core = await loadCore(readFileSync(process.argv[2] + "/azq.wasm"))
const game = core.game("connect_four")
const searching = (changes = {}, options = {}) => game.search({ ...settings, ...changes }, { slots: 4, ...options })
const blank = (leaves) => [new Float32Array(leaves * 7), new Float32Array(leaves)]

/** Searches until nothing is busy. */
function run(search, { numActions, valueSize } = game) {
  for (let leaves = search.collect(); leaves > 0; leaves = search.collect()) search.apply(new Float32Array(leaves * numActions), new Float32Array(leaves * valueSize))
}

const checks = {
  "games say what they do not take"() {
    assert.throws(() => core.game("chess"), /no game is called 'chess'; known games: 2048, backgammon, /)
    assert.throws(() => core.game("hex", { size: 6 }), /game hex: parameter size = 6; it takes one of 11, 5, 7, 9, 13/)
    assert.throws(() => core.game("hex", { size: "6" }), /parameter size = '6'; it takes one of/)
    assert.throws(() => core.game("hex", { sise: 5 }), /game hex has no parameter sise; it takes size, swap/)
    assert.throws(() => core.game("hex", { swap: true, size: null }), /size must be a number, a text, true or false, not null/)
    assert.throws(() => core.game("blob", { players: 8, cards: 10 }), /players \* cards must not exceed 52/)
    assert.deepEqual(core.game("hex").params, { size: 11, swap: false })
  },

  "positions say what is wrong with an argument"() {
    const state = game.initialState()
    assert.throws(() => state.apply(7), /action 7 is illegal here; legal actions: 0, 1, 2, 3, 4, 5, 6/)
    for (const action of [-1, 1.5, NaN, undefined, "3", 1e9]) assert.throws(() => state.apply(action), /action must be an integer/)
    assert.throws(() => state.actionText(9), /action 9 is illegal/)
    for (const player of [-1, 2, 0.5]) assert.throws(() => state.observe(player), /player must be an integer in 0\.\.1/)
    assert.throws(() => state.resample(0, 5), /seed must be a BigInt/)
    assert.throws(() => game.parse("nonsense"), /connect_four has no position 'nonsense': /)
    assert.equal(game.parse(state.notation()).notation(), state.notation())
    for (const action of [0, 1, 0, 1, 0, 1, 0]) state.apply(action)
    assert.deepEqual([state.actor(), state.returns()], [-4, [1, -1]])
    assert.throws(() => state.apply(0), /the game is over/)
    state.free()
    state.free()
    assert.throws(() => state.legal(), /was freed/)
  },

  "a search says what is wrong with its settings"() {
    assert.throws(() => searching({ num_simulations: 0 }), /search: num_simulations must be in 1\.\.1048576/)
    assert.throws(() => searching({ num_simulations: 1.5 }), /search: num_simulations must be in/)
    assert.throws(() => searching({ c_puct: "1" }), /search: c_puct must be a number/)
    assert.throws(() => searching({ c_puct: NaN }), /search: c_puct must be a number/)
    assert.throws(() => searching({ reuse_subtree: 1 }), /search: reuse_subtree must be true or false/)
    assert.throws(() => searching({ algorithm: "minimax" }), /algorithm must be gumbel or puct/)
    assert.throws(() => searching({ schedule: true }), /search: there is no setting schedule/)
    assert.throws(() => searching({ schedule: [] }), /schedule must be a number, a text/)
    assert.throws(() => game.search({ algorithm: "puct" }), /search: num_simulations is missing/)
    assert.throws(() => core.game("blob").search({ ...settings, leaves_per_step: 2 }), /leaves_per_step must be 1 in blob, whose hands are hidden/)
    for (const slots of [0, -1, 2.5, 2 ** 21]) assert.throws(() => searching({}, { slots }), /slots must be an integer/)
    assert.throws(() => searching({}, { seed: 7 }), /seed must be a BigInt/)
    assert.throws(() => searching({ num_simulations: 1 << 20 }, { slots: 1 << 20 }), /need \d+ MB, which cannot be had here; ask for fewer of either/)
    searching().free()
  },

  "a search says what is wrong with a call"() {
    const search = searching({}, { autoplay: false })
    for (const slot of [-1, 4, 0.5, undefined]) assert.throws(() => search.status(slot), /slot must be an integer in 0\.\.3/)
    assert.throws(() => search.record(1), /slot 1 is empty/)
    assert.throws(() => search.state(1), /slot 1 is empty/)
    assert.throws(() => search.start(0, { uid: 1 }), /uid must be a BigInt/)
    assert.throws(() => search.start(0, { uid: 1n, actions: [3] }), /actions must be a typed array/)
    assert.throws(() => search.start(0, { uid: 1n, actions: new Uint8Array(3) }), /an action is two/)
    assert.throws(() => search.start(0, { uid: 1n, actions: Uint16Array.of(3, 9) }), /action 9 is illegal at ply 1 of game 1/)
    assert.throws(() => search.start(0, { uid: 1n, actions: Uint16Array.of(3), policies: new Uint16Array(6) }), /policies of game 1 have 12 bytes, its 1 actions ask for 14/)
    assert.equal(search.status(0), "empty")
    assert.throws(() => search.startAt(0, 1n, core.game("hex").initialState()), /not of the game of this search/)
    search.start(0, { uid: 1n, actions: Uint16Array.of(3) })
    assert.throws(() => search.apply(...blank(1)), /no leaves are waiting; call collect first/)
    assert.throws(() => search.result(0), /slot 0 has no spent search; its status is busy/)
    assert.equal(search.collect(), 1)
    assert.throws(() => search.collect(), /1 leaves of the last collect wait for apply/)
    assert.throws(() => search.clear(0), /slot 0 waits for evaluations; call apply first/)
    assert.throws(() => search.play(0, 3), /slot 0 waits for evaluations/)
    assert.throws(() => search.apply(new Float32Array(6), new Float32Array(1)), /apply needs logits as a Float32Array of 1 x 7 numbers/)
    assert.throws(() => search.apply(new Float64Array(7), new Float32Array(1)), /Float32Array of 1 x 7/)
    assert.throws(() => search.apply(new Float32Array(7).fill(NaN), new Float32Array(1)), /hold NaN, the evaluator is broken; nothing was applied/)
    assert.throws(() => search.apply(...blank(1), -1), /version must be an integer/)
    search.apply(...blank(1))
    run(search)
    assert.throws(() => search.play(0, 7), /action 7 is illegal in slot 0/)
    search.play(0, 3)
    assert.equal(search.record(0).plies, 2)
    search.free()
    assert.throws(() => search.collect(), /search of connect_four was freed/)
    const playing = searching()
    playing.start(0, { uid: 1n })
    assert.throws(() => playing.play(0, 3), /plays by itself/)
    assert.throws(() => playing.startAt(1, 1n, game.initialState()), /autoplay: false/)
    playing.free()
  },

  "leaves come as a network takes them"() {
    const backgammon = core.game("backgammon")
    const search = backgammon.search(settings, { slots: 3, seed: 5n })
    for (let slot = 0; slot < 3; slot++) search.start(slot, { uid: BigInt(slot) })
    const leaves = search.collect()
    assert.deepEqual([...search.owners()], [0, 1, 2])
    const packed = search.packed().slice()
    assert.equal(packed.length, leaves * backgammon.packedSize)
    for (let leaf = 0; leaf < leaves; leaf++) {
      const state = search.state(leaf)
      assert.deepEqual(packed.subarray(leaf * backgammon.packedSize, (leaf + 1) * backgammon.packedSize), state.observe())
      state.free()
    }
    search.free()
  },

  "a record goes on elsewhere"() {
    const [first, second] = [searching(), searching()]
    first.start(0, { uid: 9n })
    for (let turn = 0; turn < 200; turn++) first.apply(...blank(first.collect()), 3)
    const half = first.record(0)
    assert.ok(half.plies > 2 && !half.terminal)
    second.start(3, half)
    run(first)
    run(second)
    assert.deepEqual(second.record(3), { ...first.record(0), weightVersions: second.record(3).weightVersions })
    assert.ok(second.record(3).terminal)
    for (const search of [first, second]) search.free()
  },

  "all games are played by people, move by move, hidden hands and chance included"() {
    for (const name of core.games()) {
      const rules = core.game(name)
      const search = rules.search({ ...settings, num_simulations: 4 }, { slots: 1, autoplay: false })
      const state = rules.initialState()
      search.start(0, { uid: 1n })
      for (let ply = 0; state.actor() !== -4; ply++) {
        run(search, rules)
        const legal = state.legal()
        const action = state.actor() === -1 ? state.chance()[ply % legal.length].outcome : search.result(0).bestAction
        assert.ok(legal.includes(action) && state.actionText(action).length > 0)
        if (rules.hasHidden) assert.ok(state.informationState(0).length > 0)
        search.play(0, action)
        state.apply(action)
      }
      const [copy, ended] = [search.state(0), search.record(0)]
      assert.equal(copy.notation(), state.notation())
      assert.deepEqual([search.status(0), ended.returns], ["finished", state.returns()])
      for (const handle of [copy, state, search]) handle.free()
    }
  },

  "memory does not grow with games, searches and positions"() {
    const once = () => {
      for (const name of ["gomoku", "backgammon", "connect_four"]) {
        const search = core.game(name).search(settings, { slots: 16 })
        search.runUniform(60000)
        search.free()
        const state = core.game(name).initialState()
        for (let i = 0; i < 200; i++) state.clone().free()
        state.free()
      }
    }
    for (let round = 0; round < 3; round++) once()
    const before = core.memoryBytes()
    for (let round = 0; round < 6; round++) once()
    assert.equal(core.memoryBytes(), before)
  },

  "logits round to float16 as numpy's do"() {
    const numbers = new Float32Array(Uint8Array.from(Buffer.from(halves, "base64")).buffer)
    const rules = core.game("gomoku", { size: 19 })
    const search = rules.search({ ...settings, num_simulations: 1 }, { autoplay: false })
    const rounded = new Float32Array(numbers.length)
    for (let first = 0; first < numbers.length; first += 361) {
      const logits = new Float32Array(361)
      logits.set(numbers.subarray(first, first + 361))
      search.start(0, { uid: 1n })
      search.collect()
      search.apply(logits, new Float32Array(1))
      run(search, rules)
      rounded.set(search.result(0).priorLogits.subarray(0, Math.min(361, numbers.length - first)), first)
    }
    search.free()
    return Buffer.from(rounded.buffer).toString("base64")
  },
}

console.log(JSON.stringify({ sources: core.sources(), checks: Object.fromEntries(Object.entries(checks).map(([name, check]) => [name, check() ?? null])) }))
