// Messages between this tab and its gateway, as azq/wire/tabs.py has them: frames [schema, [tag, field, ...]].

import { decode, encode } from "../vendor/msgpack.mjs";

export const SCHEMA = 4;
const MATCH_UIDS = 2 ** 52;
export const GROUP_UIDS = 64; // of a match: the rest is the seat of its first player

/** Whether a game is one of a match. */
export const isMatch = (uid) => uid >= MATCH_UIDS;

/** The number by which a game's random numbers are drawn where its hand-out names none. */
export const luckOf = (uid) => (isMatch(uid) ? uid - (uid % GROUP_UIDS) : uid);

/** Fields by message, in the order of the wire; those that an older gateway leaves out at the end are undefined. */
export const FIELDS = {
  Hello: ["page", "token", "invite", "device", "run", "name"],
  WorkerReady: ["backend", "workers", "core", "features", "games", "version", "versions"],
  Progress: ["games", "simulations", "evaluations", "plies", "playing", "version", "cpu"],
  GamesComplete: ["games"],
  EvalResult: ["games"],
  Bye: [],
  Welcome: ["contributor", "token", "name", "run", "served"],
  ModelUpdate: ["run", "game", "params", "version", "sha256", "size", "positions", "logits", "values", "tolerance"],
  PlayGames: ["run", "seed", "search", "games", "stop", "version"],
  EvalGames: ["run", "seed", "search", "networks", "games"],
  Accepted: ["uids", "totals"],
  Refused: ["reason", "remedy", "uids", "final"],
  Standing: ["figures"],
};
const TAB_GAME = ["uid", "ticket", "actions", "policies", "rootValues", "simulations", "weightVersions", "spentMs", "support"];
const RECORD = ["uid", "actions", "policies", "rootValues", "simulations", "weightVersions", "support"];

/** The frame of a message {tag, ...fields}. */
export const toFrame = (message) => encode([SCHEMA, [message.tag, ...FIELDS[message.tag].map((name) => message[name])]]);

/** A finished game as a message holds it. */
export const tabGame = (game) => ["TabGame", ...TAB_GAME.map((name) => ({ spentMs: 0, support: new Uint8Array(0), ...game })[name])];

/** The message {tag, ...fields} of a frame; throws an Error for anything else. */
export function fromFrame(frame) {
  const [schema, body] = decode(frame);
  if (schema !== SCHEMA) throw new Error(`the gateway speaks schema ${schema}, this page ${SCHEMA}; load the page again`);
  const [tag, ...values] = body;
  if (!Object.hasOwn(FIELDS, tag)) throw new Error(`the gateway says ${tag}, which this page does not know; load the page again`);
  const message = Object.assign({ tag }, named(FIELDS[tag], values));
  if (tag === "EvalGames") message.networks = message.networks.map(([, ...fields]) => named(FIELDS.ModelUpdate, fields));
  if (tag === "PlayGames" || tag === "EvalGames") message.games = (message.games ?? []).map(([, uid, ticket, record, luck]) => ({ uid, ticket, record: fromRecord(record), luck }));
  return message;
}

/** The arrays of a game's record, or null where no ply was played. */
function fromRecord(frame) {
  if (!frame?.length) return null;
  const [, ...values] = decode(frame).at(-1);
  return named(RECORD, values);
}

const named = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));
