// The Web Workers of this tab: who plays which game, what they have done, and the network that all of them use.

const WORKER = new URL("worker.js", import.meta.url);
const NOTHING = { games: 0, plies: 0, simulations: 0, evaluations: 0, busyMs: 0 };

export class Crew {
  #hands = []; // {worker, games: Map of those it has, bout: the match that it knows, loaded}
  #model = null;
  #plan = null;
  #share = 0;
  #settings;

  /** `core`: bytes of azq.wasm; `on.finished(game)`, `on.board(board)`, `on.loaded(facts)`, `on.unfit(facts)`, `on.beat()`, `on.failed(reason)`. */
  constructor(core, on) {
    Object.assign(this, { core, on, totals: { ...NOTHING }, version: 0, backend: "" });
  }

  /** Uids of all games that are being played. */
  get playing() {
    return this.#hands.flatMap(({ games }) => [...games.keys()]);
  }

  /** Begins, or goes on with so many workers that play so many games each; what was being played is begun again from what was handed out. */
  start({ workers, games, backend }) {
    const handed = this.#dismiss();
    this.#settings = { workers, games, backend };
    for (let i = 0; i < workers; i++) this.#hire(i);
    this.hand(handed);
  }

  stop() {
    this.#dismiss();
  }

  /** Begins for another run: with nothing of the last one, whose network would play the next one's games falsely. */
  anew() {
    this.#dismiss();
    this.#model = this.#plan = null;
    this.version = 0;
    this.start(this.#settings);
  }

  /** {name, params, version, bytes, test}, as worker.js takes it. */
  use(model) {
    this.#model?.bytes?.buffer.transfer?.(0); // given back now: the collector takes its time
    this.#model = model;
    this.#all({ model });
  }

  /** Run, seed and search settings, as PlayGames has them. */
  plan({ seed, search }) {
    const wanted = { seed, search };
    if (JSON.stringify(wanted) === JSON.stringify(this.#plan)) return;
    this.#plan = wanted;
    this.#all({ plan: { ...wanted, slots: this.#settings.games } });
  }

  /** Games go to those who have the fewest; one of a match with its `bout`: {seed, search, models}. */
  hand(games) {
    for (const game of games) {
      if (this.#hands.some((hand) => hand.games.has(game.uid))) continue;
      const idle = this.#hands.reduce((one, other) => (other.games.size < one.games.size ? other : one));
      idle.games.set(game.uid, game);
      const { bout, ...rest } = game;
      idle.worker.postMessage(bout ? { match: { ...rest, bout: bout === idle.bout ? null : bout } } : { games: [rest] });
      idle.bout = bout ?? idle.bout;
    }
  }

  /** Drops games, or all of them. */
  forget(uids = null) {
    for (const { games } of this.#hands) for (const uid of uids ?? [...games.keys()]) games.delete(uid);
    this.#all({ forget: uids });
  }

  /** Of each core, from 0: none, to 1. */
  get share() {
    return this.#share;
  }

  set share(share) {
    if (share !== this.#share) this.#all({ share });
    this.#share = share;
  }

  #all(message) {
    for (const { worker } of this.#hands) worker.postMessage(message);
  }

  #hire(number) {
    const hand = { worker: new Worker(WORKER, { type: "module" }), games: new Map(), bout: null, loaded: 0 };
    hand.worker.onmessage = ({ data }) => this.#hear(hand, data);
    hand.worker.onerror = (event) => this.on.failed(event.message || "a Web Worker could not be loaded; load the page again");
    hand.worker.postMessage({ setup: { bytes: this.core, backend: this.#settings.backend }, share: this.#share, watch: number === 0 });
    if (this.#model) hand.worker.postMessage({ model: this.#model });
    if (this.#plan) hand.worker.postMessage({ plan: { ...this.#plan, slots: this.#settings.games } });
    this.#hands.push(hand);
  }

  #hear(hand, { finished, progress, loaded, unfit, failed }) {
    if (finished && hand.games.delete(finished.uid)) {
      this.totals.games++;
      this.on.finished(finished);
    }
    if (progress) {
      for (const name of Object.keys(NOTHING)) this.totals[name] += progress[name] ?? 0;
      if (progress.board) this.on.board(progress.board);
      this.on.beat();
    }
    if (loaded) {
      hand.loaded = loaded.version;
      this.version = Math.min(...this.#hands.map((each) => each.loaded));
      this.backend = loaded.backend;
      this.on.loaded(loaded, this.#hands.every((each) => each.loaded === loaded.version));
    }
    if (unfit?.match) for (const [uid, game] of hand.games) if (game.bout === hand.bout) hand.games.delete(uid);
    if (unfit) this.on.unfit(unfit);
    if (failed) this.on.failed(failed);
  }

  #dismiss() {
    for (const { worker } of this.#hands) worker.terminate();
    return this.#hands.splice(0).flatMap(({ games }) => [...games.values()]);
  }
}
