// One core's share of the work: searches its games in step, evaluates their leaves, and says what it finished.
//
// Messages in: {setup} {model} {retire} {game} {match} {forget} {share} {watch}; out: {loaded} {unfit} {finished} {progress} {failed}.
// What comes in waits until the step that is under way has ended: a search is touched by one hand only.

import { loadCore } from "../core.js";
import { openNetwork } from "../network.js";
import { Table } from "./table.js";

const REPORT_MS = 1000;
const BREATH_MS = 40; // of work without a look at the messages
const MATCH_SLOTS = 4;
const NO_COUNTS = { plies: 0, simulations: 0, evaluations: 0, busyMs: 0 };

/** Leaves of a run that has no network yet, or wants none. */
const UNIFORM = {
  backend: "uniform",
  evaluate: async (_, count, { numActions, valueSize }) => ({ logits: new Float32Array(count * numActions), values: new Float32Array(count * valueSize) }),
  close: async () => {},
};

const inbox = [];
let wake = () => {};
let core = null;
const networks = new Map(); // by version: {game, params, network, version}
let tables = []; // of self-play, the oldest first: {table, key, used: one of networks}
let turn = 0; // whose it is among them
let matches = []; // {table, networks, versions}, which come before self-play, for others wait for their last game
let latest = null; // of them, to which games are added
let backend = "auto", share = 1, watched = false;
let counts = { ...NO_COUNTS };

onmessage = ({ data }) => {
  inbox.push(data);
  wake();
};

const handlers = {
  async setup({ bytes, backend: wanted }) {
    core = await loadCore(bytes);
    backend = wanted;
  },

  /** Another network, for games that are handed out for it. */
  async model(model) {
    try {
      const opened = await open(model);
      networks.set(model.version, opened);
      postMessage({ loaded: { version: model.version, backend: opened.network.backend, fallback: opened.network.fallback } });
    } catch (error) {
      postMessage({ unfit: { version: model.version, reason: error.message } });
    }
  },

  /** A network that no game needs any more. */
  async retire(version) {
    const old = networks.get(version);
    leave(({ used }) => used === old);
    networks.delete(version);
    await old?.network.close();
  },

  /** A game, each ply of which is searched by its plan: with one version and one budget, whatever comes meanwhile. */
  game({ plan, slots, ...game }) {
    const used = networks.get(plan.version);
    if (!used) return;
    const key = JSON.stringify([plan, slots]);
    let found = tables.find((each) => each.key === key);
    if (!found) {
      leave(({ table }) => !table.all.length);
      tables.push((found = { key, used, table: new Table(used.game, plan, slots) }));
    }
    found.table.waiting.push(game);
  },

  /** A game of a match; `bout` is the match where it is not the one of the game before. */
  async match({ bout, ...game }) {
    if (bout) latest = await begin(bout);
    latest?.table.waiting.push(game);
  },

  /** Games that are no longer this tab's; all of them without a list. */
  forget(uids) {
    for (const each of [...tables, ...matches]) each.table.forget(uids);
  },

  share(wanted) {
    share = wanted;
  },

  watch(wanted) {
    watched = wanted;
  },
};

/** {game, network, version} of a model, tried. Throws where it does not compute what it must. */
async function open({ name, params, version, bytes, test }) {
  const same = [...networks.values()].find((each) => each.game.name === name && each.params === JSON.stringify(params));
  const game = same?.game ?? core.game(name, params);
  const network = bytes ? await openNetwork(bytes, { core, backend, test: { ...test, game } }) : UNIFORM;
  return { game, params: JSON.stringify(params), network, version };
}

/** Takes a match on, and leaves those that have no more games; null where a network cannot be used. */
async function begin({ seed, search, models }) {
  const versions = models.map(({ version }) => version);
  for (const { table, networks } of matches.filter((each) => !each.table.all.length)) {
    table.free();
    for (const { network } of networks) await network.close();
  }
  matches = matches.filter((each) => each.table.all.length);
  try {
    const networks = [await open(models[0]), await open(models[1])];
    matches.push({ networks, versions, table: new Table(networks[0].game, { seed, search }, MATCH_SLOTS) });
    return matches.at(-1);
  } catch (error) {
    postMessage({ unfit: { version: versions.join(" or "), reason: error.message, match: true } });
    return null;
  }
}

/** Frees some of the tables. */
function leave(which) {
  for (const { table } of tables.filter(which)) {
    counts.simulations += table.moved();
    table.free();
  }
  tables = tables.filter((each) => !which(each));
}

/** Slots that a table may fill while others play their games to the end. */
const room = (each) => tables.reduce((left, other) => left - (other === each ? 0 : other.table.playing.length), each.table.slots.length);

/** Whether there was anything to search, in a match or else in self-play: one leaf of each tree, and the games that ended with it. */
async function step() {
  const match = matches.find((each) => each.table.all.length);
  const some = tables.filter((each) => each.table.playing.length || (each.table.waiting.length && room(each) > 0));
  const whose = match ?? some[turn++ % some.length];
  if (!whose) return false;
  const at = whose.table;
  const leaves = at.collect(match ? at.slots.length : room(whose));
  if (leaves) await (match ? at.evaluateByMover(match.networks, leaves) : at.evaluate(whose.used, leaves));
  counts.evaluations += leaves;
  const ended = at.harvest();
  for (const finished of ended) {
    counts.plies += finished.plies;
    postMessage({ finished });
  }
  return leaves > 0 || ended.length > 0;
}

function tell() {
  const all = [...matches, ...tables];
  for (const each of all) counts.simulations += each.table.moved();
  const shown = watched ? all.find((each) => each.table.playing.length) : null;
  const board = shown ? { ...shown.table.shown(), match: shown.versions ?? null } : null;
  postMessage({ progress: { ...counts, board } });
  counts = { ...NO_COUNTS };
}

async function main() {
  const channel = new MessageChannel();
  const breathe = () => new Promise((resolve) => { channel.port1.onmessage = resolve; channel.port2.postMessage(0); });
  const rest = (ms) => new Promise((resolve) => { inbox.length ? resolve() : setTimeout(resolve, ms); wake = resolve; });
  let reported_ms = 0, busy = 0;
  for (;;) {
    while (inbox.length) for (const [name, value] of Object.entries(inbox.shift())) await handlers[name](value);
    const from = performance.now();
    const worked = share > 0 ? await step() : false;
    const spent = worked ? performance.now() - from : 0;
    busy += spent;
    counts.busyMs += spent;
    if (performance.now() - reported_ms >= REPORT_MS) {
      reported_ms = performance.now();
      tell();
    }
    if (!worked) await rest(REPORT_MS);
    else if (busy >= BREATH_MS) {
      const pause = busy * (1 / share - 1);
      busy = 0;
      await (pause > 1 ? rest(Math.min(pause, REPORT_MS)) : breathe());
    }
  }
}

main().catch((error) => postMessage({ failed: error.message }));
