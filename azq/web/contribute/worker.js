// One core's share of the work: searches its games in step, evaluates their leaves, and says what it finished.
//
// Messages in: {setup} {model} {plan} {games} {match} {forget} {share} {watch}; out: {loaded} {unfit} {finished} {progress} {failed}.
// What comes in waits until the step that is under way has ended: a search is touched by one hand only.

import { loadCore } from "../core.js";
import { openNetwork } from "../network.js";
import { Table } from "./table.js";

const TELL_MS = 1000;
const BREATH_MS = 40; // of work without a look at the messages
const PLIES_EACH = 4; // that games move on average before the next network: however slow the tab, they come to their end
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
let core = null, plan = null;
let used = null; // {game, network, version} of self-play
let next = null; // the same that waits to be used
let table = null; // of self-play
let early = []; // games that came before there was one
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

  /** Another network, tried at once and used from a later ply on. */
  async model(model) {
    try {
      const opened = await open(model);
      await next?.network.close();
      next = opened;
    } catch (error) {
      postMessage({ unfit: { version: model.version, reason: error.message } });
    }
  },

  plan(wanted) {
    plan = wanted;
    renew();
  },

  games(handed) {
    (table?.waiting ?? early).push(...handed);
  },

  /** A game of a match; `bout` is the match where it is not the one of the game before. */
  async match({ bout, ...game }) {
    if (bout) latest = await begin(bout);
    latest?.table.waiting.push(game);
  },

  /** Games that are no longer this tab's; all of them without a list. */
  forget(uids) {
    early = early.filter((each) => uids && !uids.includes(each.uid));
    table?.forget(uids);
    for (const each of matches) each.table.forget(uids);
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
  const same = [used, next].find((each) => each?.game.name === name && each.params === JSON.stringify(params));
  const game = same?.game ?? core.game(name, params);
  const network = bytes ? await openNetwork(bytes, { backend, test: { ...test, game } }) : UNIFORM;
  return { game, params: JSON.stringify(params), network, version };
}

/** Takes a match on, and leaves those that have no more games; null where a network cannot be used. */
async function begin({ seed, search, models }) {
  const versions = models.map(({ version }) => version);
  for (const { table, networks } of matches.filter((each) => !each.table.all.length)) {
    table.leave();
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

/** The next network takes over, where it is time: the ply that each game is in begins anew, so that every ply has one version. */
async function swap() {
  const moved = table ? table.search.totals().plies : Infinity;
  if (!next || moved < PLIES_EACH * (table?.playing.length ?? 0)) return;
  const old = used;
  if (old && next.game !== old.game) handlers.forget(null); // what was begun under other rules
  used = next;
  next = null;
  renew();
  await old?.network.close();
  postMessage({ loaded: { version: used.version, backend: used.network.backend, fallback: used.network.fallback } });
}

/** The same games in a new search, each at the beginning of the ply that it is in. */
function renew() {
  if (!used || !plan) return;
  if (table) counts.simulations += table.moved();
  const played = table ? table.leave() : early;
  early = [];
  table = new Table(used.game, plan, plan.slots);
  table.waiting = played;
}

/** Whether there was anything to search, in a match or else in self-play: one leaf of each tree, and the games that ended with it. */
async function step() {
  const match = matches.find((each) => each.table.all.length);
  const at = match?.table ?? table;
  if (!at) return false;
  const from = performance.now();
  const leaves = at.collect();
  if (leaves) await (match ? at.evaluateByMover(match.networks, leaves) : at.evaluate(used, leaves));
  counts.evaluations += leaves;
  const spent = performance.now() - from;
  const playing = at.playing;
  for (const each of playing) each.spentMs += spent / playing.length;
  const ended = at.harvest();
  for (const finished of ended) {
    counts.plies += finished.plies;
    postMessage({ finished });
  }
  return leaves > 0 || ended.length > 0;
}

function tell() {
  const all = [...matches, { table, versions: null }].filter((each) => each.table);
  for (const each of all) counts.simulations += each.table.moved();
  const playing = [...all.flatMap((each) => each.table.all), ...early].map(({ uid }) => uid);
  const shown = watched ? all.find((each) => each.table.playing.length) : null;
  const board = shown ? { ...shown.table.shown(), match: shown.versions } : null;
  postMessage({ progress: { ...counts, playing, version: used?.version ?? 0, board } });
  counts = { ...NO_COUNTS };
}

async function main() {
  const channel = new MessageChannel();
  const breathe = () => new Promise((resolve) => { channel.port1.onmessage = resolve; channel.port2.postMessage(0); });
  const rest = (ms) => new Promise((resolve) => { inbox.length ? resolve() : setTimeout(resolve, ms); wake = resolve; });
  let told = 0, busy = 0;
  for (;;) {
    while (inbox.length) for (const [name, value] of Object.entries(inbox.shift())) await handlers[name](value);
    await swap();
    const from = performance.now();
    const worked = share > 0 ? await step() : false;
    const spent = worked ? performance.now() - from : 0;
    busy += spent;
    counts.busyMs += spent;
    if (performance.now() - told >= TELL_MS) {
      told = performance.now();
      tell();
    }
    if (!worked) await rest(TELL_MS);
    else if (busy >= BREATH_MS) {
      const pause = busy * (1 / share - 1);
      busy = 0;
      await (pause > 1 ? rest(Math.min(pause, TELL_MS)) : breathe());
    }
  }
}

main().catch((error) => postMessage({ failed: error.message }));
