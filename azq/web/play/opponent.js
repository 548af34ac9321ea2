// Who plays against the person: the run's networks behind one face, wherever they are evaluated.
//
// levels() -> [{elo, weight_version, num_simulations, temperature, measured}], weakest first
// moves(positions, strength) -> {weight_version, moves: [{action, text, value, player, candidates: [{action, text, share, ...}], ...}]}
//   positions: [{actions}] of a game from its beginning; strength: {level} or {weights, num_simulations, temperature}, as the REST interface has them

import { Refused, call, path } from "/web/api.js";

const PATIENCE_MS = 40_000;
const AT_ONCE = 16;  // positions in a request
const TRIES = 4;

/** On the server, behind the inference workers. */
export class ServerOpponent {
  constructor(run) {
    this.run = run;
  }

  levels() {
    return call(path(this.run, "/levels"));
  }

  async moves(positions, strength) {
    const found = [];
    let version = 0;
    for (let first = 0; first < positions.length; first += AT_ONCE) {
      const answer = await this.#ask({ positions: positions.slice(first, first + AT_ONCE), ...strength });
      version = answer.weight_version;
      found.push(...answer.moves);
    }
    return { weight_version: version, moves: found };
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
