// Where the page comes from, and so the runs it can play against: a daemon with all of its runs, which also searches, or a gateway of
// volunteers with the runs that they play for, or a site of files with the networks that azq ships: there everything happens in the tab.

import { Refused, call, callBytes, path } from "../api.js";
import { ServerOpponent, TabOpponent } from "./opponent.js";

/** {runs: [{name, sections: {run: {game, params}}}], opponents(run), gateway, site}; `guarded` asks for a token where one is needed. */
export async function findSource(guarded) {
  if (document.documentElement.dataset.game) return ofSite(guarded);
  try {
    const runs = await guarded(() => call("/v1/runs"));
    return { runs: runs.sort(byAge), opponents: (run) => ofDaemon(run, guarded) };
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) throw error;
  }
  const { runs = [] } = await guarded(() => call("/v1/public"));
  const playable = (run) => guarded(() => call(`/v1/public/play?run=${encodeURIComponent(run)}`));
  const byTabs = (one, other) => other.tabs - one.tabs;
  return {
    gateway: true, runs: runs.sort(byTabs).map(({ run, game, params }) => ({ name: run, sections: { run: { game, params } } })),
    opponents: async (run) => inTab(await playable(run), (sha256) => callBytes(`/models/${sha256}.onnx`)),
  };
}

async function ofSite(guarded) {
  const games = await guarded(() => call("/games.json"));
  return {
    site: true, runs: games.map(({ game, params, start, levels }) => ({ name: game, start, levels, sections: { run: { game, params } } })),
    opponents: async (game) => inTab(await guarded(() => call(`/site/${game}.json`)), (sha256) => callBytes(`/site/${sha256}.onnx`)),
  };
}

const byAge = (one, other) => (other.state === "running") - (one.state === "running") || other.created_ms - one.created_ms;

/** Who can be played against, the first by default: [{name, text, open}]. */
async function ofDaemon(run, guarded) {
  const playable = await guarded(() => call(path(run, "/networks")));
  return [{ name: "server", text: "on the server", open: () => new ServerOpponent(run) },
    ...inTab(playable, (sha256) => callBytes(path(run, `/networks/${sha256}`)))];
}

function inTab(playable, fetchModel) {
  return playable?.networks.length ? [{ name: "tab", text: "in this tab", open: () => new TabOpponent(playable, fetchModel) }] : [];
}
