// Who plays against the person: the run's networks behind one face, wherever they are evaluated.
//
// levels() -> [{elo, weight_version, num_simulations, temperature, measured}], weakest first
// moves(positions, strength) -> {weight_version, moves: [{action, text, value, player, candidates: [{action, text, share, ...}], ...}]}
//   positions: [{actions}] from the beginning, or [{position}], a notation; strength: {level} or {weights, num_simulations, temperature}, as the REST interface has them

import { Refused, call, path } from "../api.js";
import { sha256 as hexOf } from "../sha256.js";

const PATIENCE_MS = 40_000;
const AT_ONCE = 16;  // positions in a request
const TRIES = 4;

/** The answers to all positions, asked for some at a time. */
async function inParts(positions, ask) {
  const parts = [];
  for (let first = 0; first < positions.length; first += AT_ONCE) parts.push(await ask(positions.slice(first, first + AT_ONCE)));
  return { weight_version: parts.at(-1)?.weight_version ?? 0, moves: parts.flatMap(({ moves }) => moves) };
}

/** On the server, behind the inference workers. */
export class ServerOpponent {
  advice = { weights: "best", num_simulations: 400 };  // how hints are asked for

  constructor(run) {
    this.run = run;
  }

  levels() {
    return call(path(this.run, "/levels"));
  }

  moves(positions, strength) {
    return inParts(positions, (part) => this.#ask({ positions: part, ...strength }));
  }

  async #ask(body) {
    for (let tries = 1; ; tries++) {
      try {
        return await call(path(this.run, "/moves"), { method: "POST", body, patience_ms: PATIENCE_MS });
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 429 || tries === TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, 1000 * tries));  // others are searching
      }
    }
  }
}

/** In the tab: `playable` lists the run's networks (Playable of the server), `fetchModel(sha256)` resolves to the bytes of one. */
export class TabOpponent {
  advice = { weights: "best", num_simulations: 200 };

  constructor(playable, fetchModel) {
    this.playable = playable;
    this.fetchModel = fetchModel;
    this.worker = new Worker(new URL("thinker.js", import.meta.url), { type: "module" });
    this.waiting = new Map();
    this.version = null;
    this.worker.onmessage = ({ data: { id, answer, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) reject(new Error(error));
      else resolve(answer);
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`the search in this tab failed: ${event.message}`));
      this.waiting.clear();
    };
    this.ready = this.#ask({ play: { game: playable.game, params: playable.params, search: playable.search } });
  }

  close() {
    this.worker.terminate();
  }

  async levels() {
    return this.playable.levels;
  }

  async moves(positions, strength) {
    await this.ready;
    const { weight_version: version, num_simulations: simulations, temperature = 0 } = this.#settled(strength);
    if (version !== this.version) {
      const sha256 = this.playable.networks.find((network) => network.version === version)?.sha256;
      if (!sha256) throw new Error(`network ${version} is not on this server`);
      const bytes = await this.fetchModel(sha256);
      if (hexOf(bytes) !== sha256) throw new Error(`network ${version} was damaged on its way; reload the page`);
      await this.#ask({ model: { version, bytes } });
      this.version = version;
    }
    return inParts(positions, async (part) => ({ weight_version: version, moves: await this.#ask({ moves: { positions: part, version, simulations, temperature } }) }));
  }

  /** Weights, simulations and temperature of a strength, from what there is. */
  #settled({ level, weights, num_simulations, temperature }) {
    const { levels, networks } = this.playable;
    if (level !== undefined) return levels.reduce((best, one) => (Math.abs(one.elo - level) < Math.abs(best.elo - level) ? one : best));
    const best = levels.findLast((one) => one.measured)?.weight_version;
    const weight_version = weights === "best" && best !== undefined ? best : networks.at(-1).version;
    return { weight_version, num_simulations, temperature };
  }

  #ask(message) {
    const id = (this.last = (this.last ?? 0) + 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, ...message });
    });
  }
}
