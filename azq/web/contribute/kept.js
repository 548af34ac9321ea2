// Finished games that the gateway has not answered for, kept by the browser: they outlive a reload, and a tab that is closed.
// A browser that keeps nothing forgets them with the page. Tabs of one browser tell each other what was answered.

import { SCHEMA } from "./wire.js";

const NAME = "azq-finished", STORE = "games";
const LIFE_MS = 24 * 3_600_000; // others have played them by then
const MOST = 1000;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/** The oldest first: those that are still worth bringing, and the others, among them games of another schema. Pure. */
export function sifted(games, now_ms) {
  const inOrder = [...games].sort((one, other) => one.at_ms - other.at_ms);
  const worth = inOrder.filter(({ at_ms, schema }) => schema === SCHEMA && Math.abs(now_ms - at_ms) < LIFE_MS).slice(-MOST);
  return { worth, rest: inOrder.filter((game) => !worth.includes(game)) };
}

/** `on.answered(run, uids)`: another tab had the answer about them. */
export class Kept {
  #database = null;
  #others = globalThis.BroadcastChannel && new BroadcastChannel(NAME);

  constructor(on) {
    if (this.#others) this.#others.onmessage = ({ data: { run, uids } }) => on.answered(run, uids);
  }

  /** What earlier pages left, the oldest first. */
  async open() {
    try {
      const opening = indexedDB.open(NAME, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: ["run", "uid"] });
      this.#database = await done(opening);
      const { worth, rest } = sifted(await done(this.#database.transaction(STORE).objectStore(STORE).getAll()), Date.now());
      this.#change((store) => rest.forEach(({ run, uid }) => store.delete([run, uid])));
      return worth;
    } catch {
      return [];
    }
  }

  put(game) {
    this.#change((store) => store.put({ ...game, at_ms: Date.now(), schema: SCHEMA }));
  }

  /** They were answered for. */
  drop(run, uids) {
    this.#change((store) => uids.forEach((uid) => store.delete([run, uid])));
    this.#others?.postMessage({ run, uids });
  }

  #change(change) {
    try {
      if (this.#database) change(this.#database.transaction(STORE, "readwrite").objectStore(STORE));
    } catch {
      // the browser keeps nothing any more
    }
  }
}
