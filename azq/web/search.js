// Search of many games in azq.wasm; see core.js for the letters.

import { bytesOf, integer, word64 } from "./calls.js"
import { whole } from "./policies.js"

const STATUS = ["empty", "busy", "idle", "chance", "finished"]

/** Many games, one a slot, searched in step: `collect` the next leaves of all trees, `apply` their evaluations. */
export class Search {
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

  /** Puts a game into a slot, from the beginning or after `actions` with the targets recorded so far: typed arrays or bytes, policies whole or with `support`. */
  start(slot, { uid, actions = new Uint16Array(0), policies, rootValues, simulations, weightVersions, support }) {
    this.#still(slot)
    word64(uid, "uid")
    const { numActions, valueSize } = this.game
    const played = bytesOf(actions, "actions")
    if (played.length % 2 !== 0) throw new Error(`actions of game ${uid} have ${played.length} bytes; an action is two`)
    const plies = played.length / 2
    if (support?.length) policies = whole(bytesOf(policies, "policies"), bytesOf(support, "support"), plies, numActions)
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
    if (state?.game !== this.game) throw new Error("startAt: the position is not of the game of this search; use the same Game object")
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
    const take = this.#calls.numbers("azq_record", this.#own, this.#filled(slot))
    const [uid] = take(BigUint64Array, 1)
    const [plies] = take(Int32Array, 1)
    const returns = [...take(Float32Array, numPlayers)]
    const bytes = (each) => take(Uint8Array, plies * each)
    const terminal = this.status(slot) === "finished"
    const targets = { actions: bytes(2), policies: bytes(2 * numActions), rootValues: bytes(4 * valueSize) }
    return { uid, plies, terminal, returns, ...targets, simulations: bytes(2), weightVersions: bytes(4) }
  }

  /** Root statistics of a spent search, for the player to move: arrays (A,) by action. */
  result(slot) {
    if (this.status(slot) !== "idle") throw new Error(`slot ${slot} has no spent search; its status is ${this.status(slot)}`)
    const { numActions } = this.game
    const take = this.#calls.numbers("azq_result", this.#own, slot)
    const [action, bestAction, proven] = take(Int32Array, 3)
    const [rootValue] = take(Float32Array, 1)
    const [policy, qValues, priorLogits] = [1, 2, 3].map(() => take(Float32Array, numActions))
    return { action, bestAction, proven: proven === 1, rootValue, policy, qValues, priorLogits, visitCounts: take(Int32Array, numActions) }
  }

  /** The whole tree of N nodes in the order of their creation: arrays (N,) and, of actions, (N, A). */
  tree(slot) {
    const { numActions } = this.game
    const take = this.#calls.numbers("azq_tree", this.#own, this.#filled(slot))
    const [nodes] = take(Int32Array, 1)
    const [parent, action, visits] = [1, 2, 3].map(() => take(Int32Array, nodes))
    const childVisits = take(Int32Array, nodes * numActions)
    const [rawValue, mean, lower, upper] = [1, 2, 3, 4].map(() => take(Float32Array, nodes))
    const [prior, q] = [1, 2].map(() => take(Float32Array, nodes * numActions))
    return { parent, action, visits, childVisits, rawValue, mean, lower, upper, prior, q, actor: take(Int8Array, nodes) }
  }

  /** A copy of a slot's position; free it. */
  state(slot) {
    return this.game.at(this.#calls.make("azq_state_of", this.#own, this.#filled(slot)))
  }

  /** Without autoplay: plays an action in a slot, anyone's or chance's, and searches on if the game is not over. */
  play(slot, action) {
    this.#filled(this.#still(slot))
    if (this.autoplay) throw new Error("play: this search plays by itself (autoplay)")
    this.#calls.ask("azq_play", this.#own, slot, integer(action, "action", 0, 65535))
  }

  /** What was done since the search was made. */
  totals() {
    const [simulations, exact, leaves, plies, memoryBytes] = this.#calls.numbers("azq_totals", this.#own)(Float64Array)
    return { simulations, exact, leaves, plies, memoryBytes }
  }

  free() {
    if (this.#address !== 0) this.#calls.exports.azq_free_search(this.#address)
    this.#address = 0
  }
}
