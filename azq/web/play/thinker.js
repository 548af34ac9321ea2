// A run's networks in a thread of the tab: the core searches and evaluates, or ONNX Runtime does; answers have the shape of the REST interface's.
//
// Messages in: {id, play: {game, params, search}} {id, model: {version, bytes}} {id, moves: {positions, version, simulations, temperature}};
// out: {id, answer} or {id, error}.

import { loadCore } from "../core.js";
import { openNetwork } from "../network.js";

const NETWORKS = 2;  // that stay open
let core = null, game = null, settings = null;
const networks = new Map();

const handlers = {
  async play({ game: name, params, search }) {
    core = await loadCore(new URL("../azq.wasm", import.meta.url));
    game = core.game(name, params);
    settings = search;
  },

  async model({ version, bytes }) {
    networks.set(version, await openNetwork(bytes, { core }));
    for (const old of [...networks.keys()].slice(0, -NETWORKS)) {
      await networks.get(old).close();
      networks.delete(old);
    }
  },

  async moves({ positions, version, simulations, temperature }) {
    const network = networks.get(version);
    const seed = crypto.getRandomValues(new BigUint64Array(1))[0];
    const search = game.search({ ...settings, num_simulations: simulations }, { slots: positions.length, seed, autoplay: false });
    const states = positions.map(stateOf);
    try {
      states.forEach((state, slot) => search.startAt(slot, BigInt(slot + 1), state));
      for (let leaves = search.collect(); leaves; leaves = search.collect()) {
        const { logits, values } = await network.evaluate(search.packed(), leaves, game);
        search.apply(logits, values, version);
      }
      return states.map((state, slot) => evaluation(state, search.result(slot), temperature));
    } finally {
      for (const one of [search, ...states]) one.free();
    }
  },
};

let last = Promise.resolve();  // one after the other: a search and its network are touched by one hand only

onmessage = ({ data: { id, ...asked } }) => {
  const [[name, about]] = Object.entries(asked);
  last = last.then(() => handlers[name](about)).then((answer) => postMessage({ id, answer }), (error) => postMessage({ id, error: error.message }));
};

function stateOf({ actions = [], position }) {
  const state = position === undefined ? game.initialState() : game.parse(position);
  for (const action of actions) state.apply(action);
  return state;
}

function evaluation(state, result, temperature) {
  const legal = state.legal();
  const most = Math.max(...legal.map((action) => result.priorLogits[action]));
  const raised = new Map(legal.map((action) => [action, Math.exp(result.priorLogits[action] - most)]));
  const total = [...raised.values()].reduce((sum, one) => sum + one, 0);
  const candidates = legal.map((action) => ({
    action, text: state.actionText(action), visits: result.visitCounts[action], share: result.policy[action], prior: raised.get(action) / total,
    value: Number.isNaN(result.qValues[action]) ? null : result.qValues[action],
  })).sort((one, other) => (other.action === result.bestAction) - (one.action === result.bestAction) || other.share - one.share || other.visits - one.visits);
  const action = temperature ? drawn(candidates, temperature) : result.bestAction;
  const answer = { player: state.actor(), action, text: state.actionText(action), value: result.rootValue, proven: result.proven, candidates };
  const best = state.actionText(result.bestAction);
  return { ...answer, principal_variation: [result.bestAction], principal_variation_texts: [best] };
}

/** A move in proportion to its share to the power 1 / temperature. */
function drawn(candidates, temperature) {
  const most = Math.max(...candidates.map(({ share }) => share));
  const weights = candidates.map(({ share }) => (share / most) ** (1 / temperature));
  let left = Math.random() * weights.reduce((sum, one) => sum + one, 0);
  return candidates[weights.findIndex((weight) => (left -= weight) < 0)]?.action ?? candidates[0].action;
}
