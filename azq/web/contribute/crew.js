// The Web Workers of this tab: who plays which game, what they have done, and the network that all of them use.

const WORKER = new URL("worker.js", import.meta.url);
const NETWORKS = 3; // at once, however fast new ones come
const NOTHING = { games: 0, plies: 0, simulations: 0, evaluations: 0, busyMs: 0 };

export class Crew {
  #hands = []; // {worker, games: Map of those it has, bout: the match that it knows, loaded}
  #models = new Map(); // by version, which all workers have or are about to: the one in use and the one before, and those that games need
  #next = null; // the newest, which waits until there is room for it
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

  /** Of the networks that games may be played with. */
  get versions() {
    return [...this.#models.keys()];
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
  reset() {
    this.#dismiss();
    this.#models.clear();
    this.#next = null;
    this.version = 0;
    this.start(this.#settings);
  }

  /** {name, params, version, sha256, bytes, test}, as worker.js takes it. */
  use(model) {
    const known = this.#models.get(model.version);
    if (known && known.sha256 !== model.sha256) this.reset(); // the run was made again under its name
    if (known?.sha256 === model.sha256) return;
    this.#next = model;
    this.#renew();
  }

  /** Retires models that no game needs, and takes the next one where there is room. */
  #renew() {
    const used = new Set(this.#hands.flatMap(({ games }) => [...games.values()].map(({ plan }) => plan?.version)));
    const kept = [...this.#models.keys()];
    for (const version of kept.slice(0, Math.max(0, kept.indexOf(this.version) - 1)).filter((each) => !used.has(each))) {
      this.#models.get(version).bytes?.buffer.transfer?.(0); // given back now: the collector takes its time
      this.#models.delete(version);
      this.#all({ retire: version });
    }
    if (!this.#next || this.#models.size >= NETWORKS) return;
    const model = this.#next;
    this.#next = null;
    this.#models.set(model.version, model);
    this.#all({ model });
  }

  /** Games go to those who have the fewest; each with its `plan`: {seed, search, version}, one of a match with its `bout`: {seed, search, models}. */
  hand(games) {
    for (const game of games) {
      if (this.#hands.some((hand) => hand.games.has(game.uid)) || (game.plan && !this.#models.has(game.plan.version))) continue;
      const idle = this.#hands.reduce((one, other) => (other.games.size < one.games.size ? other : one));
      idle.games.set(game.uid, game);
      const { bout, plan, ...rest } = game;
      idle.worker.postMessage(bout ? { match: { ...rest, bout: bout === idle.bout ? null : bout } } : { game: { ...rest, plan, slots: this.#settings.games } });
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
    for (const model of this.#models.values()) hand.worker.postMessage({ model });
    this.#hands.push(hand);
  }

  #hear(hand, { finished, progress, loaded, unfit, failed }) {
    if (finished && hand.games.delete(finished.uid)) {
      this.totals.games++;
      this.on.finished(finished);
      this.#renew();
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
      this.#renew();
      this.on.loaded(loaded, this.#hands.every((each) => each.loaded === loaded.version));
    }
    if (unfit) {
      const ended = ({ bout, plan }) => (unfit.match ? bout === hand.bout : plan?.version === unfit.version);
      for (const [uid, game] of hand.games) if (ended(game)) hand.games.delete(uid);
      if (!unfit.match) this.#models.delete(unfit.version);
      this.on.unfit(unfit);
    }
    if (failed) this.on.failed(failed);
  }

  #dismiss() {
    for (const { worker } of this.#hands) worker.terminate();
    return this.#hands.splice(0).flatMap(({ games }) => [...games.values()]);
  }
}
