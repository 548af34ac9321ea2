// One game on the table: what was played since its beginning, and the position that came of it. The rules are the core's.

import { CHANCE_PLAYER, TERMINAL_PLAYER } from "../core.js";

export class Table {
  /** `rules`: a game of the core; throws where the actions are not those of a game. */
  constructor(rules, actions = []) {
    this.rules = rules;
    this.#begin();
    for (const action of actions) this.play(action);
  }

  get actor() {
    return this.state.actor();
  }

  get chance() {
    return this.actor === CHANCE_PLAYER;
  }

  get over() {
    return this.actor === TERMINAL_PLAYER;
  }

  get text() {
    return this.state.text();
  }

  get returns() {
    return this.state.returns();
  }

  /** What may be done: [{action, text}]. */
  legal() {
    return this.over ? [] : this.state.legal().map((action) => ({ action, text: this.state.actionText(action) }));
  }

  play(action) {
    if (!this.over && !this.state.legal().includes(action)) throw new Error(`action ${action} is not legal after ${this.plies.length} plies`);
    this.plies.push({ action, text: this.state.actionText(action), player: this.actor, before: this.text });
    this.state.apply(action);
  }

  /** Lets chance act. */
  roll() {
    const outcomes = this.state.chance();
    let left = luck() * outcomes.reduce((sum, { probability }) => sum + probability, 0);
    const chosen = outcomes.find(({ probability }) => (left -= probability) < 0) ?? outcomes.at(-1);
    this.play(chosen.outcome);
  }

  /** Takes back a player's last move and all that came after it; false where he has made none. */
  takeBack(seat) {
    const ply = this.plies.findLastIndex(({ player }) => player === seat);
    if (ply < 0) return false;
    const kept = this.plies.slice(0, ply);
    this.state.free();
    this.#begin();
    for (const { action } of kept) this.play(action);
    return true;
  }

  actions(plies = this.plies.length) {
    return this.plies.slice(0, plies).map(({ action }) => action);
  }

  /** The position after so many plies for an evaluation: what its player to move cannot know is drawn again, so that no answer depends on it. */
  asked(plies = this.plies.length) {
    const actions = this.actions(plies);
    if (!this.rules.hasHidden) return { actions };
    const { state } = new Table(this.rules, actions);
    const drawn = state.resample(state.actor(), BigInt(Math.floor(luck() * 2 ** 32)));
    const position = drawn.notation();
    for (const one of [state, drawn]) one.free();
    return { position };
  }

  #begin() {
    this.state = this.rules.initialState();
    this.plies = [];
  }
}

const luck = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
