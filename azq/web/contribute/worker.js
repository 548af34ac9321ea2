// One core's share of the work: searches its games in step, evaluates their leaves, and says what it finished.
//
// Messages in: {setup} {model} {plan} {games} {forget} {share} {watch}; out: {loaded} {unfit} {finished} {progress} {failed}.
// What comes in waits until the step that is under way has ended: a search is touched by one hand only.

import { loadCore } from "../core.js";
import { openNetwork } from "../network.js";
import { withoutZeros } from "../policies.js";

const TELL_MS = 1000;
const BREATH_MS = 40; // of work without a look at the messages
const PLIES_EACH = 4; // that games move on average before the next network: however slow the tab, they come to their end
const NO_COUNTS = { plies: 0, simulations: 0, evaluations: 0, busyMs: 0 };

/** Leaves of a run that has no network yet, or wants none. */
const UNIFORM = {
  backend: "uniform",
  evaluate: async (_, count, { numActions, valueSize }) => ({ logits: new Float32Array(count * numActions), values: new Float32Array(count * valueSize) }),
  close: async () => {},
};

const inbox = [];
let wake = () => {};
let core = null, game = null, network = null, search = null, plan = null, version = 0;
let sameParams = "";
let backend = "auto", share = 1, watched = false;
let next = null; // a network that waits to be used
let waiting = []; // games that no slot plays yet
let slots = []; // by slot: the game in it as it was handed, with the time spent on it, or null
let counts = { ...NO_COUNTS };
let simulations = 0; // of the search that is in use, when it was last asked

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
  async model({ name, params, version: number, bytes, test }) {
    const known = game?.name === name && sameParams === JSON.stringify(params) ? game : core.game(name, params);
    try {
      const opened = bytes ? await openNetwork(bytes, { backend, test: { ...test, game: known } }) : UNIFORM;
      await next?.network.close();
      next = { game: known, params: JSON.stringify(params), network: opened, version: number };
    } catch (error) {
      postMessage({ unfit: { version: number, reason: error.message } });
    }
  },

  plan(wanted) {
    plan = wanted;
    renew();
  },

  games(handed) {
    waiting.push(...handed);
  },

  /** Games that are no longer this tab's; all of them without a list. */
  forget(uids) {
    const gone = (each) => !uids || uids.includes(each.uid);
    waiting = waiting.filter((each) => !gone(each));
    slots.forEach((each, slot) => {
      if (!each || !gone(each)) return;
      search.clear(slot);
      slots[slot] = null;
    });
  },

  share(wanted) {
    share = wanted;
  },

  watch(wanted) {
    watched = wanted;
  },
};

/** The next network takes over, where it is time: the ply that each game is in begins anew, so that every ply has one version. */
async function swap() {
  const moved = search && network ? search.totals().plies : Infinity;
  if (!next || moved < PLIES_EACH * slots.filter(Boolean).length) return;
  const old = network;
  if (game && next.game !== game) handlers.forget(null); // what was begun under other rules
  ({ game, params: sameParams, network, version } = next);
  next = null;
  renew();
  await old?.close();
  postMessage({ loaded: { version, backend: network.backend, fallback: network.fallback } });
}

/** The same games in a new search, each at the beginning of the ply that it is in. */
function renew() {
  if (!game || !plan) return;
  const played = slots.map((each, slot) => each && { ...each, record: search.record(slot) }).filter(Boolean);
  count();
  search?.free();
  simulations = 0;
  search = game.search(plan.search, { slots: plan.slots, seed: BigInt(plan.seed), autoplay: true });
  slots = Array(plan.slots).fill(null);
  waiting = [...played, ...waiting];
}

function fill() {
  for (let slot = 0; slot < slots.length && waiting.length; slot++) {
    if (slots[slot]) continue;
    slots[slot] = { spentMs: 0, ...waiting.shift() };
    const { record, uid } = slots[slot];
    search.start(slot, { ...record, uid: BigInt(uid) });
  }
}

/** One leaf of each tree; false where there is nothing to search. */
async function step() {
  fill();
  const leaves = slots.some(Boolean) ? search.collect() : 0;
  if (leaves) {
    const { logits, values } = await network.evaluate(search.planes(), leaves, game);
    search.apply(logits, values, version);
    counts.evaluations += leaves;
  }
  return harvest() > 0 || leaves > 0;
}

function count() {
  const now = search?.totals().simulations ?? 0;
  counts.simulations += now - simulations;
  simulations = now;
}

/** Hands finished games over; how many. */
function harvest() {
  let found = 0;
  slots.forEach((each, slot) => {
    if (!each || search.status(slot) !== "finished") return;
    const { plies, actions, policies, rootValues, simulations: spent, weightVersions } = search.record(slot);
    const { uid, ticket, spentMs } = each;
    counts.plies += plies;
    const sparse = withoutZeros(policies, game.numActions);
    postMessage({ finished: { uid, ticket, actions, rootValues, simulations: spent, weightVersions, ...sparse, spentMs: Math.round(spentMs), plies } });
    search.clear(slot);
    slots[slot] = null;
    found++;
  });
  return found;
}

function tell() {
  count();
  const playing = [...slots.filter(Boolean), ...waiting].map(({ uid }) => uid);
  const shown = watched ? slots.findIndex(Boolean) : -1;
  let board = null;
  if (shown >= 0) {
    const state = search.state(shown);
    board = { uid: slots[shown].uid, text: state.text() };
    state.free();
  }
  postMessage({ progress: { ...counts, playing, version, board } });
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
    const worked = share > 0 && network && search ? await step() : false;
    const spent = worked ? performance.now() - from : 0;
    const playing = slots.filter(Boolean);
    for (const each of playing) each.spentMs += spent / playing.length;
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
