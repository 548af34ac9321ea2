// Rules and search of azq's games in page, Web Worker and Node: the module azq.wasm behind objects.
//
// Letters: A actions, P bytes of a packed observation, L leaves of a collect, V values of a position, T plies.
// Views that `packed` and `owners` return are valid until the next call into the module: memory may move when it grows.
// Whatever is wrong with an argument is an Error that names the thing, the place and the remedy, and nothing has changed then.

import { fetchBytes } from "./address.js"
import { Calls, encoded, integer, word64 } from "./calls.js"
import { Search } from "./search.js"

export const CHANCE_PLAYER = -1
export const TERMINAL_PLAYER = -4

/** The core from the bytes of azq.wasm, or from where they are served. */
export async function loadCore(source) {
  if (typeof WebAssembly !== "object") throw new Error("this browser lacks WebAssembly; use a newer one")
  const bytes = typeof source === "string" || source instanceof URL ? await fetchBytes(source, "the games' rules are") : source
  const module = await WebAssembly.compile(bytes).catch((error) => {
    throw new Error(`this browser does not take the games' WebAssembly; allow it for this site (${error.message})`)
  })
  const imports = {}
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {}
    imports[from][name] = () => 0 // of WASI, for streams that nothing writes to
  }
  const instance = await WebAssembly.instantiate(module, imports)
  instance.exports._initialize?.()
  return new Core(instance.exports)
}

class Core {
  #calls

  constructor(exports) {
    this.#calls = new Calls(exports)
  }

  /** The names of all games. */
  games() {
    return this.#calls.words("azq_game_names").split("\n")
  }

  /** The rules of a game, with its parameters and the defaults of the others. */
  game(name, params = {}) {
    this.#calls.params(params)
    this.#calls.input(encoded(name))
    return new Game(this.#calls, this.#calls.make("azq_load_game"))
  }

  /** A network in whole numbers, of its description's bytes. */
  network(description) {
    this.#calls.input(description)
    return new WholeNetwork(this.#calls, this.#calls.make("azq_network"))
  }

  /** The hash of the sources that were compiled. */
  sources() {
    return this.#calls.words("azq_sources")
  }

  /** Bytes of memory that the module has, which never shrinks. */
  memoryBytes() {
    return this.#calls.exports.memory.buffer.byteLength
  }
}

/** A network evaluated here, as network.js has them. */
class WholeNetwork {
  #calls
  #address

  constructor(calls, address) {
    Object.assign(this, { backend: "wasm", fallback: "" })
    this.#calls = calls
    this.#address = address
  }

  /** Logits (L, A), unmasked, and values (L, V) of packed observations (L, P) of a game; both as they count in a search. */
  async evaluate(packed, count, { numActions, valueSize, packedSize }) {
    this.#calls.input(packed.slice(0, count * packedSize)) // a copy: a view may end as the module's memory grows
    const take = this.#calls.numbers("azq_evaluate", this.#address, count)
    return { logits: take(Float32Array, count * numActions), values: take(Float32Array, count * valueSize) }
  }

  async close() {
    if (this.#address !== 0) this.#calls.exports.azq_free_network(this.#address)
    this.#address = 0
  }
}

class Game {
  #calls
  #address

  constructor(calls, address) {
    this.#calls = calls
    this.#address = address
    this.name = calls.words("azq_game_name", address)
    this.params = JSON.parse(calls.words("azq_params", address))
    const sizes = calls.numbers("azq_dimensions", address)(Int32Array)
    ;[this.numActions, this.numPlayers, this.scalars, this.packedSize, this.valueSize, this.maxLength] = sizes
    this.planes = [...sizes.slice(6, 9)]
    this.hasChance = sizes[9] > 0
    this.hasHidden = sizes[10] === 1
    Object.freeze(this)
  }

  initialState() {
    return this.at(this.#calls.make("azq_initial", this.#address))
  }

  /** The position of one line of notation. */
  parse(line) {
    this.#calls.input(encoded(line))
    return this.at(this.#calls.make("azq_parse", this.#address))
  }

  /** The position that the module made at an address. */
  at(address) {
    return new State(this.#calls, this, address)
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

  /** Who acts: a player, CHANCE_PLAYER or TERMINAL_PLAYER. */
  actor() {
    return this.#calls.exports.azq_actor(this.address)
  }

  /** Legal actions, ascending; where chance acts its outcomes. */
  legal() {
    return [...this.#calls.numbers("azq_legal", this.address)(Int32Array)]
  }

  /** Plays an action, or lets an outcome happen; returns the position itself. */
  apply(action) {
    this.#calls.ask("azq_act", this.address, integer(action, "action", 0, 65535))
    return this
  }

  /** Results of a finished game by player; zeros before. */
  returns() {
    return [...this.#calls.numbers("azq_returns", this.address, this.game.numPlayers)(Float32Array)]
  }

  text() {
    return this.#calls.words("azq_text", this.address)
  }

  notation() {
    return this.#calls.words("azq_notation", this.address)
  }

  /** All that a player knows. */
  informationState(player) {
    return this.#calls.words("azq_information", this.address, this.#player(player))
  }

  /** A legal action in the words of its players. */
  actionText(action) {
    return this.#calls.words("azq_action_text", this.address, integer(action, "action", 0, 65535))
  }

  /** What chance may do: [{outcome, probability}], empty where it does not act. */
  chance() {
    const take = this.#calls.numbers("azq_chance", this.address)
    const [count] = take(Int32Array, 1)
    const outcomes = take(Int32Array, count)
    return Array.from(take(Float32Array, count), (probability, i) => ({ outcome: outcomes[i], probability }))
  }

  /** The packed observation (P,) from a player's view; without one, from that of the player to move. */
  observe(player = this.#calls.exports.azq_mover(this.address)) {
    return this.#calls.numbers("azq_observe", this.address, this.#player(player), this.game.packedSize)(Uint8Array)
  }

  /** A position that the player cannot tell from this one, drawn by a seed. */
  resample(player, seed) {
    return this.game.at(this.#calls.make("azq_resample", this.address, this.#player(player), word64(seed, "seed")))
  }

  clone() {
    return this.game.at(this.#calls.make("azq_clone", this.address))
  }

  free() {
    if (this.#address !== 0) this.#calls.exports.azq_free_state(this.#address)
    this.#address = 0
  }
}
