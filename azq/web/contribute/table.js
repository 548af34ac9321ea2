// Games that are searched in step, each from what was handed out to its end.

import { withoutZeros } from "../policies.js";
import { GROUP_UIDS, luckOf } from "./wire.js";

export class Table {
  #simulations = 0; // when last asked

  /** `seed`, `search`: as PlayGames and EvalGames have them. */
  constructor(game, { seed, search }, size) {
    this.game = game;
    this.search = game.search(search, { slots: size, seed: BigInt(seed), autoplay: true });
    this.slots = Array(size).fill(null); // the game in each as it was handed
    this.waiting = []; // games that no slot plays yet
  }

  get playing() {
    return this.slots.filter(Boolean);
  }

  get all() {
    return [...this.playing, ...this.waiting];
  }

  /** The next leaf of each tree, of `most` games at once; their number, 0 where there is nothing to search. */
  collect(most = this.slots.length) {
    for (let slot = 0; slot < this.slots.length && this.waiting.length && this.playing.length < most; slot++) {
      if (this.slots[slot]) continue;
      this.slots[slot] = this.waiting.shift();
      const { record, uid, luck } = this.slots[slot];
      this.search.start(slot, { ...record, uid: BigInt(luck || luckOf(uid)) });
    }
    return this.playing.length ? this.search.collect() : 0;
  }

  /** The leaves' evaluations by one network. */
  async evaluate({ network, version }, leaves) {
    const { logits, values } = await network.evaluate(this.search.packed(), leaves, this.game);
    this.search.apply(logits, values, version);
  }

  /** The leaves' evaluations in a match: by the network of who moves where its tree begins, the first player's or the second's. */
  async evaluateByMover(networks, leaves) {
    const { game, search } = this;
    const logits = new Float32Array(leaves * game.numActions), values = new Float32Array(leaves * game.valueSize);
    const packed = search.packed().slice(); // the view ends where a state or an evaluation makes the memory grow
    const sides = [...search.owners()].map((slot) => Number(this.#mover(slot) !== this.slots[slot].uid % GROUP_UIDS));
    for (const [side, { network }] of networks.entries()) {
      const rows = [...sides.keys()].filter((row) => sides[row] === side);
      if (!rows.length) continue;
      const found = await network.evaluate(taken(packed, game.packedSize, rows), rows.length, game);
      rows.forEach((row, i) => {
        logits.set(found.logits.subarray(i * game.numActions, (i + 1) * game.numActions), row * game.numActions);
        values.set(found.values.subarray(i * game.valueSize, (i + 1) * game.valueSize), row * game.valueSize);
      });
    }
    search.apply(logits, values);
  }

  /** Takes finished games away, as a message holds them. */
  harvest() {
    const found = [];
    this.slots.forEach((each, slot) => {
      if (!each || this.search.status(slot) !== "finished") return;
      const { plies, actions, policies, rootValues, simulations, weightVersions } = this.search.record(slot);
      const { uid, ticket } = each;
      found.push({ uid, ticket, actions, rootValues, simulations, weightVersions, ...withoutZeros(policies, this.game.numActions), plies });
      this.#clear(slot);
    });
    return found;
  }

  /** Drops games; all of them without a list. */
  forget(uids) {
    const gone = (each) => !uids || uids.includes(each.uid);
    this.waiting = this.waiting.filter((each) => !gone(each));
    this.slots.forEach((each, slot) => each && gone(each) && this.#clear(slot));
  }

  /** Simulations since this was last asked. */
  moved() {
    const before = this.#simulations;
    this.#simulations = this.search.totals().simulations;
    return this.#simulations - before;
  }

  /** A game in play and its position, or null. */
  shown() {
    const slot = this.slots.findIndex(Boolean);
    if (slot < 0) return null;
    const state = this.search.state(slot);
    const text = state.text();
    state.free();
    return { uid: this.slots[slot].uid, text };
  }

  free() {
    this.search.free();
  }

  #mover(slot) {
    const state = this.search.state(slot);
    const actor = state.actor();
    state.free();
    return actor;
  }

  #clear(slot) {
    this.search.clear(slot);
    this.slots[slot] = null;
  }
}

function taken(array, width, rows) {
  const some = new Uint8Array(rows.length * width);
  rows.forEach((row, i) => some.set(array.subarray(row * width, (row + 1) * width), i * width));
  return some;
}
