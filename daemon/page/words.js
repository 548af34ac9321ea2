// What figures are called, how they are written and what they mean: tooltips, charts and the glossary read this one table.

import { h } from "../web/dom.js";
import { MEASURES } from "../web/measures.js";

/** Other figures: [label, meaning]. */
const FIGURES = {
  "games/s": ["Games/s", "Self-play games that this run finishes in a second."],
  "simulations/s": ["Simulations/s", "Steps of tree search in a second: select, expand, back up."],
  "evaluations/s": ["Evaluations/s", "Positions that the network judges in a second."],
  "mean batch": ["Mean batch", "Positions in one forward pass, on average. Larger uses a GPU better."],
  "network busy": ["Network busy", "Share of the time that inference workers spend in forward passes."],
  "open games": ["Open games", "Games in play, or in the pool waiting for a worker."],
  samples: ["Samples", "Positions with search results that the learner has received."],
  step: ["Training step", "Batches that the network was trained on."],
  "samples/insert": ["Samples per insert", "How often each sample is trained on, on average."],
  limiter: ["Balance", "Whether self-play or training waits so that neither runs ahead of the other."],
  weights: ["Weights", "Newest version of the network, and the one that serves where that is another."],
  network: ["Network size", "Blocks x channels."],
  "policy lag": ["Policy lag", "Versions between the newest network and the ones that play."],
  cost: ["Cost", "What the machines have cost so far, by their prices per hour."],
  time: ["Time", "Active time, without pauses."],
  games: ["Games", "Self-play games finished and counted once by the ledger."],
  loss: ["Loss", "Training loss of policy and value."],
  results: ["Results", "Share of draws, and of wins of the first player, among recorded games."],
  length: ["Game length", "Moves of a recorded game, on average."],
  entropy: ["Policy entropy", "How undecided the search is, in nats. It falls as play gets sharper."],
  openings: ["Unique openings", "Share of games whose first moves no other game has."],
  miscalibration: ["Value calibration error", "How far predicted results are from those that came."],
  age: ["Data staleness", "Versions between the newest network and the one that played a game."],
  selfplay: ["Self-play time", "Where the time of self-play workers goes."],
  inference: ["Inference time", "Where the time of inference workers goes."],
  learner: ["Learner time", "Where the learner's time goes."],
};

export const label = (key) => FIGURES[key]?.[0] ?? key[0].toUpperCase() + key.slice(1);

export const meaning = (key) => FIGURES[key]?.[1] ?? Object.values(MEASURES).find(({ title }) => title.toLowerCase().startsWith(key.toLowerCase()))?.meaning ?? "";

/** A figure with its name, which explains itself and leads to the glossary. */
export const tile = (key, value, tone = "") => h("div", { class: `tile ${tone}`, "data-tile": key, title: meaning(key) },
  h("a", { class: "term", href: "#/glossary" }, label(key)), h("b", {}, value));

export class GlossaryView {
  asks = [];
  element = h("section", { class: "panel glossary" }, h("h1", {}, "Glossary"), h("dl", {},
    [...Object.values(MEASURES).map((one) => [one.title, one.meaning]), ...Object.values(FIGURES)].map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
}
