// Rules and search of azq's games in page, Web Worker and Node: the module azq.wasm behind objects.
//
// Letters: A actions, P bytes of a packed observation, L leaves of a collect, V values of a position, T plies.
// Views that `packed` and `planes` return are valid until the next call into the module: memory may move when it grows.
// Whatever is wrong with an argument is an Error that names the thing, the place and the remedy, and nothing has changed then.

const REFUSED = -1000
const KINDS = { boolean: 0, integer: 1, number: 2, string: 3 }
const STATUS = ["empty", "busy", "idle", "chance", "finished"]

export const CHANCE_PLAYER = -1
export const TERMINAL_PLAYER = -4

/** The core from the bytes of azq.wasm, or from where they are served. */
export async function loadCore(source) {
  const bytes = typeof source === "string" || source instanceof URL ? await fetched(source) : source
  const module = await WebAssembly.compile(bytes)
  const imports = {}
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {}
    imports[from][name] = () => 0 // of WASI, for streams that nothing writes to
  }
  const instance = await WebAssembly.instantiate(module, imports)
  instance.exports._initialize?.()
  return new Core(instance.exports)
}

async function fetched(url) {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}; reload the page, or ask who runs it`)
  return response.arrayBuffer()
}

function integer(value, name, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) throw new Error(`${name} must be an integer in ${least}..${most}, not ${value}`)
  return value
}

function word64(value, name) {
  if (typeof value !== "bigint" || value < 0n || value >= 1n << 64n) throw new Error(`${name} must be a BigInt in 0..2^64-1, not ${value}`)
  return value
}

function bytesOf(array, name) {
  if (!ArrayBuffer.isView(array)) throw new Error(`${name} must be a typed array, not ${array === null ? "null" : typeof array}`)
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
}

/** The calls into the module, and the bytes that go with them. */
class Calls {
  constructor(exports) {
    this.exports = exports
  }

  input(...parts) {
    const size = parts.reduce((sum, part) => sum + part.length, 0)
    const at = this.exports.azq_input(size) >>> 0
    const input = new Uint8Array(this.exports.memory.buffer, at, size)
    parts.reduce((first, part) => (input.set(part, first), first + part.length), 0)
  }

  text(text) {
    return new TextEncoder().encode(text)
  }

  /** A copy of the output as an array of this type. */
  output(Type = Uint8Array) {
    const { azq_output, azq_output_size, memory } = this.exports
    const size = azq_output_size() >>> 0
    return new Type(memory.buffer.slice(azq_output() >>> 0, (azq_output() >>> 0) + size))
  }

  words() {
    return new TextDecoder().decode(this.output())
  }

  /** Calls a function of the module, and says in an Error what it refused. */
  ask(name, ...args) {
    const answer = this.exports[name](...args)
    if (answer === REFUSED) throw new Error(this.words())
    return answer
  }

  /** The same, of a function that returns an object's address. */
  make(name, ...args) {
    const address = this.exports[name](...args)
    if (address === 0) throw new Error(this.words())
    return address
  }

  params(params) {
    for (const [name, value] of Object.entries(params)) {
      const kind = typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value
      if (!(kind in KINDS)) throw new Error(`${name} must be a number, a text, true or false, not ${kind}`)
      const key = this.text(name)
      this.input(key, kind === "string" ? this.text(value) : new Uint8Array(0))
      this.exports.azq_param(key.length, KINDS[kind], kind === "string" ? 0 : Number(value))
    }
  }

  view(Type, address, count) {
    return new Type(this.exports.memory.buffer, address >>> 0, count)
  }
}

class Core {
  #calls

  constructor(exports) {
    this.#calls = new Calls(exports)
  }

  /** The names of all games. */
  games() {
    this.#calls.exports.azq_game_names()
    return this.#calls.words().split("\n")
  }

  /** The rules of a game, with its parameters and the defaults of the others. */
  game(name, params = {}) {
    this.#calls.params(params)
    this.#calls.input(this.#calls.text(name))
    return new Game(this.#calls, this.#calls.make("azq_load_game"))
  }

  /** The hash of the sources that were compiled. */
  sources() {
    this.#calls.exports.azq_sources()
    return this.#calls.words()
  }

  /** Bytes of memory that the module has, which never shrinks. */
  memoryBytes() {
    return this.#calls.exports.memory.buffer.byteLength
  }
}

class Game {
  #calls
  #address

  constructor(calls, address) {
    this.#calls = calls
    this.#address = address
    calls.exports.azq_game_name(address)
    this.name = calls.words()
    calls.exports.azq_params(address)
    this.params = JSON.parse(calls.words())
    calls.exports.azq_dimensions(address)
    const [numActions, numPlayers, planes, rows, columns, numScalars, packedSize, valueSize, maxLength, outcomes, hidden] = calls.output(Int32Array)
    Object.assign(this, { numActions, numPlayers, planes: [planes, rows, columns], scalars: numScalars, packedSize, valueSize, maxLength })
    Object.assign(this, { maxOutcomes: outcomes, hasChance: outcomes > 0, hasHidden: hidden === 1 })
    Object.freeze(this)
  }

  initialState() {
    return new State(this.#calls, this, this.#calls.make("azq_initial", this.#address))
  }

  /** The position of one line of notation. */
  parse(line) {
    this.#calls.input(this.#calls.text(line))
    return new State(this.#calls, this, this.#calls.make("azq_parse", this.#address))
  }

  /** Many games searched in step, with all settings of azq's SearchConfig by their names. */
  search(settings, { slots = 1, seed = 0n, autoplay = true } = {}) {
    integer(slots, "slots", 1, 1 << 20)
    word64(seed, "seed")
    const calls = this.#calls
    calls.params(settings)
    const address = calls.make("azq_search", this.#address, slots, seed, autoplay)
    return new Search(calls, this, address, { slots, autoplay })
  }
}

/** One position. `free` it when it is no longer needed. */
class State {
  #calls
  #address

  constructor(calls, game, address) {
    this.#calls = calls
    this.#address = address
    this.game = game
  }

  /** For a search that starts here. */
  get address() {
    if (this.#address === 0) throw new Error(`this position of ${this.game.name} was freed; make another`)
    return this.#address
  }

  #player(player) {
    return integer(player, "player", 0, this.game.numPlayers - 1)
  }

  #array(Type, name, ...args) {
    this.#calls.exports[name](this.address, ...args)
    return this.#calls.output(Type)
  }

  #words(name, ...args) {
    this.#calls.ask(name, this.address, ...args)
    return this.#calls.words()
  }

  /** Who acts: a player, CHANCE_PLAYER or TERMINAL_PLAYER. */
  actor() {
    return this.#calls.exports.azq_actor(this.address)
  }

  /** Legal actions, ascending; where chance acts its outcomes. */
  legal() {
    return [...this.#array(Int32Array, "azq_legal")]
  }

  /** Plays an action, or lets an outcome happen; returns the position itself. */
  apply(action) {
    this.#calls.ask("azq_act", this.address, integer(action, "action", 0, 65535))
    return this
  }

  /** Results of a finished game by player; zeros before. */
  returns() {
    return [...this.#array(Float32Array, "azq_returns", this.game.numPlayers)]
  }

  text() {
    return this.#words("azq_text")
  }

  notation() {
    return this.#words("azq_notation")
  }

  /** All that a player knows. */
  informationState(player) {
    return this.#words("azq_information", this.#player(player))
  }

  /** A legal action in the words of its players. */
  actionText(action) {
    return this.#words("azq_action_text", integer(action, "action", 0, 65535))
  }

  /** What chance may do: [{outcome, probability}], empty where it does not act. */
  chance() {
    const bytes = this.#array(Uint8Array, "azq_chance")
    const pairs = new DataView(bytes.buffer)
    return Array.from({ length: bytes.length / 8 }, (_, i) => ({ outcome: pairs.getInt32(8 * i, true), probability: pairs.getFloat32(8 * i + 4, true) }))
  }

  /** The packed observation (P,) from a player's view; without one, from that of the player to move. */
  observe(player = this.#calls.exports.azq_mover(this.address)) {
    return this.#array(Uint8Array, "azq_observe", this.#player(player), this.game.packedSize)
  }

  /** A position that the player cannot tell from this one, drawn by a seed. */
  resample(player, seed) {
    return new State(this.#calls, this.game, this.#calls.make("azq_resample", this.address, this.#player(player), word64(seed, "seed")))
  }

  clone() {
    return new State(this.#calls, this.game, this.#calls.make("azq_clone", this.address))
  }

  free() {
    if (this.#address !== 0) this.#calls.exports.azq_free_state(this.#address)
    this.#address = 0
  }
}

/** Many games, one a slot, searched in step: `collect` the next leaves of all trees, `apply` their evaluations. */
class Search {
  #calls
  #address
  #awaited = 0

  constructor(calls, game, address, { slots, autoplay }) {
    this.#calls = calls
    this.#address = address
    Object.assign(this, { game, slots, autoplay })
  }

  get #own() {
    if (this.#address === 0) throw new Error(`this search of ${this.game.name} was freed; make another`)
    return this.#address
  }

  #slot(slot) {
    return integer(slot, "slot", 0, this.slots - 1)
  }

  /** A slot with a game in it. */
  #filled(slot) {
    if (this.status(slot) === "empty") throw new Error(`slot ${slot} is empty; start a game in it`)
    return slot
  }

  /** A slot whose tree may be changed. */
  #still(slot) {
    if (this.#calls.exports.azq_pending(this.#own, this.#slot(slot)) > 0) throw new Error(`slot ${slot} waits for evaluations; call apply first`)
    return slot
  }

  #array(Type, name, ...args) {
    this.#calls.ask(name, this.#own, ...args)
    return this.#calls.output(Type)
  }

  /** Puts a game into a slot, from the beginning or after `actions` with the targets recorded so far: typed arrays or bytes. */
  start(slot, { uid, actions = new Uint16Array(0), policies, rootValues, simulations, weightVersions }) {
    this.#still(slot)
    word64(uid, "uid")
    const { numActions, valueSize } = this.game
    const played = bytesOf(actions, "actions")
    if (played.length % 2 !== 0) throw new Error(`actions of game ${uid} have ${played.length} bytes; an action is two`)
    const plies = played.length / 2
    const sizes = { policies: 2 * plies * numActions, rootValues: 4 * plies * valueSize, simulations: 2 * plies, weightVersions: 4 * plies }
    const given = Object.entries({ policies, rootValues, simulations, weightVersions }).map(([name, array]) => {
      const bytes = array === undefined ? new Uint8Array(sizes[name]) : bytesOf(array, name)
      if (bytes.length !== sizes[name]) throw new Error(`${name} of game ${uid} have ${bytes.length} bytes, its ${plies} actions ask for ${sizes[name]}`)
      return bytes
    })
    this.#calls.input(played, ...given)
    this.#calls.ask("azq_start", this.#own, slot, uid, plies)
  }

  /** Without autoplay: puts a position into a slot, whose record begins there. */
  startAt(slot, uid, state) {
    this.#still(slot)
    if (this.autoplay) throw new Error("startAt: self-play games begin at the beginning, so that their records replay; make the search with autoplay: false")
    if (!(state instanceof State) || state.game !== this.game) throw new Error("startAt: the position is not of the game of this search; use the same Game object")
    this.#calls.exports.azq_start_at(this.#own, slot, word64(uid, "uid"), state.address)
  }

  clear(slot) {
    this.#calls.exports.azq_clear(this.#own, this.#still(slot))
  }

  /** "empty", "busy" (searching), "idle" (result is ready), "chance" (waits for play with an outcome) or "finished". */
  status(slot) {
    return STATUS[this.#calls.exports.azq_status(this.#own, this.#slot(slot))]
  }

  /** Advances every busy tree to its next leaf; returns their number L, and 0 when nothing is busy any more. */
  collect() {
    if (this.#awaited > 0) throw new Error(`collect: ${this.#awaited} leaves of the last collect wait for apply`)
    this.#awaited = this.#calls.exports.azq_collect(this.#own)
    return this.#awaited
  }

  /** The slots (L,) of the leaves, a view. */
  owners() {
    return this.#calls.view(Int32Array, this.#calls.exports.azq_slots_of(this.#own), this.#awaited)
  }

  /** Packed observations (L, P) of the leaves, a view. */
  packed() {
    return this.#calls.view(Uint8Array, this.#calls.exports.azq_packed(this.#own), this.#awaited * this.game.packedSize)
  }

  /** The same as a network takes them: planes (L, C, H, W) in {0, 1} and scalars (L, S), a sixteenth of their counts; views. */
  planes() {
    const cells = this.game.planes.reduce((product, size) => product * size)
    const at = this.#calls.exports.azq_planes(this.#own) >>> 0
    const planes = this.#calls.view(Float32Array, at, this.#awaited * cells)
    return { planes, scalars: this.#calls.view(Float32Array, at + planes.byteLength, this.#awaited * this.game.scalars) }
  }

  /** Gives the leaves their evaluations: logits (L, A) and values (L, V), which count as float16. */
  apply(logits, values, version = 0) {
    const leaves = this.#awaited
    if (leaves === 0) throw new Error("apply: no leaves are waiting; call collect first")
    const { numActions, valueSize } = this.game
    for (const [name, array, size] of [["logits", logits, numActions], ["values", values, valueSize]]) {
      if (!(array instanceof Float32Array) || array.length !== leaves * size) throw new Error(`apply needs ${name} as a Float32Array of ${leaves} x ${size} numbers`)
    }
    integer(version, "version", 0, 2 ** 32 - 1)
    const numbers = this.#calls.view(Float32Array, this.#calls.exports.azq_numbers(this.#own), leaves * (numActions + valueSize))
    numbers.set(logits)
    numbers.set(values, logits.length)
    this.#calls.ask("azq_apply", this.#own, version)
    this.#awaited = 0
  }

  /** Searches and plays on with logits and values of 0, at least so many simulations over all slots; returns their number. */
  runUniform(simulations) {
    if (this.#awaited > 0) throw new Error("runUniform: leaves of the last collect wait for apply")
    if (!this.autoplay) throw new Error("runUniform plays games and needs autoplay")
    return this.#calls.exports.azq_run_uniform(this.#own, integer(simulations, "simulations", this.slots, 2 ** 48))
  }

  /** What is kept of a slot's game: uid, terminal, returns, and its arrays as little-endian bytes. */
  record(slot) {
    const { numActions, numPlayers, valueSize } = this.game
    const bytes = this.#array(Uint8Array, "azq_record", this.#filled(slot))
    const head = new DataView(bytes.buffer)
    const plies = head.getInt32(8, true)
    let at = 12
    const take = (size) => bytes.slice(at, (at += size))
    const returns = [...new Float32Array(take(4 * numPlayers).buffer)]
    const arrays = { actions: take(2 * plies), policies: take(2 * plies * numActions), rootValues: take(4 * plies * valueSize) }
    Object.assign(arrays, { simulations: take(2 * plies), weightVersions: take(4 * plies) })
    return { uid: head.getBigUint64(0, true), plies, terminal: this.status(slot) === "finished", returns, ...arrays }
  }

  /** Root statistics of a spent search, for the player to move: arrays (A,) by action. */
  result(slot) {
    if (this.status(slot) !== "idle") throw new Error(`slot ${slot} has no spent search; its status is ${this.status(slot)}`)
    const bytes = this.#array(Uint8Array, "azq_result", slot)
    const { numActions } = this.game
    const [action, bestAction, proven] = new Int32Array(bytes.buffer, 0, 3)
    const take = (Type, which) => new Type(bytes.buffer, 16 + 4 * numActions * which, numActions)
    const floats = { policy: take(Float32Array, 0), qValues: take(Float32Array, 1), priorLogits: take(Float32Array, 2) }
    return { action, bestAction, proven: proven === 1, rootValue: new Float32Array(bytes.buffer, 12, 1)[0], ...floats, visitCounts: take(Int32Array, 3) }
  }

  /** The whole tree of N nodes in the order of their creation: arrays (N,) and, of actions, (N, A). */
  tree(slot) {
    const bytes = this.#array(Uint8Array, "azq_tree", this.#filled(slot))
    const nodes = new DataView(bytes.buffer).getInt32(0, true)
    let at = 4
    const take = (Type, each = 1) => {
      const array = new Type(bytes.buffer, at, nodes * each)
      at += array.byteLength
      return array
    }
    const { numActions } = this.game
    const tree = { parent: take(Int32Array), action: take(Int32Array), visits: take(Int32Array), childVisits: take(Int32Array, numActions) }
    Object.assign(tree, { rawValue: take(Float32Array), mean: take(Float32Array), lower: take(Float32Array), upper: take(Float32Array) })
    return Object.assign(tree, { prior: take(Float32Array, numActions), q: take(Float32Array, numActions), actor: take(Int8Array) })
  }

  /** A copy of a slot's position; free it. */
  state(slot) {
    return new State(this.#calls, this.game, this.#calls.make("azq_state_of", this.#own, this.#filled(slot)))
  }

  /** Without autoplay: plays an action in a slot, anyone's or chance's, and searches on if the game is not over. */
  play(slot, action) {
    this.#filled(this.#still(slot))
    if (this.autoplay) throw new Error("play: this search plays by itself (autoplay)")
    this.#calls.ask("azq_play", this.#own, slot, integer(action, "action", 0, 65535))
  }

  /** What was done since the search was made. */
  totals() {
    const [simulations, exact, leaves, plies, memoryBytes] = this.#array(Float64Array, "azq_totals")
    return { simulations, exact, leaves, plies, memoryBytes }
  }

  free() {
    if (this.#address !== 0) this.#calls.exports.azq_free_search(this.#address)
    this.#address = 0
  }
}
