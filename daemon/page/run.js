// One run at work: figures, charts, workers, queues, ledger, matches, and the buttons that change it.

import { call, path } from "../web/api.js";
import { Chart } from "../web/chart.js";
import { Controls } from "./controls.js";
import { h, show } from "../web/dom.js";
import { clock, count, fewGames, fixed, moment, percent, signed } from "../web/format.js";
import { stagesStrip } from "./stages.js";
import { arenaPanel, findingsPanel, ledgerPanel, queuesPanel, ranksTable, ratingsPanel, scoresPanel } from "./tables.js";
import { Weights } from "./weights.js";
import { Fleet } from "./workers.js";

const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["48 h", 172800]];
const POINTS = 240;

const group = () => new Set();
const line = (name, colour = 1, more = {}) => ({ name, colour, ...more });

/** [column names, chart settings] of everything drawn over time. */
const OVER_TIME = [
  [["games_per_s"], { title: "games/s", format: count }],
  [["evaluations_per_s"], { title: "evaluations/s", format: count }],
  [["mean_batch"], { title: "mean batch", format: count }],
  [["network_busy"], { title: "network busy", format: (value) => percent(value, 0), ceiling: 1 }],
  [["policy_lag"], { title: "policy lag", format: fixed(1), ceiling: 1 }],
  [["loss_policy", "loss_value"], { title: "loss", format: fixed(3), names: ["policy", "value"] }],
];

/** [columns, chart settings] of recorded games, block by block: what changes while a run learns. */
const LEARNING = [
  [["draws", "first"], { title: "results of games", format: (value) => percent(value, 0), ceiling: 1, names: ["draws", "first wins"] }],
  [["length"], { title: "plies of a game", format: count }],
  [["entropy"], { title: "entropy of policies", format: fixed(2) }],
  [["openings"], { title: "different openings", format: (value) => percent(value, 0), ceiling: 1 }],
  [["miscalibration"], { title: "values off results", format: fixed(3) }],
  [["age"], { title: "age of weights, versions", format: fixed(1), ceiling: 1 }],
];

/** Where a role's time goes: [role, phases from the bottom of the chart up]; what is not named is added up as the rest. */
const SPENT = [
  ["selfplay", ["search", "encode", "transport", "ledger", "wait"]],
  ["inference", ["forward", "copy", "collect", "reply", "weights", "idle"]],
  ["learner", ["forward", "loss", "backward", "update", "load", "sync", "idle"]],
];

export class RunView {
  asks = [[1500, this.askStatus], [2000, this.askHistory], [3000, this.askWeights], [10_000, this.askArena], [30_000, this.askLearning]];

  constructor(run) {
    this.run = run;
    this.span_s = SPANS[1][1];
    this.controls = new Controls(run, () => Promise.all([this.askStatus(), this.weights.ask()]));
    this.fleet = new Fleet();
    this.weights = new Weights(run, (action, tell) => this.controls.act(action, tell));
    const together = group();
    const drawn = (shared, formatX) => ([columns, { names, ...settings }]) => ({
      columns,
      chart: new Chart({ ...settings, series: columns.map((column, i) => line(names?.[i] ?? column, i + 1)), formatX, group: shared }),
    });
    this.charts = OVER_TIME.map(drawn(together, moment));
    this.learning = LEARNING.map(drawn(group(), (value) => `game ${count(value)}`));
    this.spent = SPENT.map(([role, phases]) => ({ role, phases, chart: new Chart({
      title: `${role}: where the time goes`, series: [...phases, "rest"].map((phase, i) => line(phase, i + 1)),
      format: (value) => percent(value, 0), formatX: moment, ceiling: 1, group: together, stacked: true }) }));
    const byVersion = group();
    const version = (value) => `v${Math.round(value)}`;
    this.elo = new Chart({ title: "Elo by weight version", series: [line("Elo", 3, { points: true })], empty: "waits for the first match", format: signed, formatX: version, floor: null, group: byVersion });
    this.errors = new Chart({ title: "graded errors by weight version", series: [line("errors", 4, { points: true })], empty: "waits for the first graded version", format: (value) => percent(value, 0), formatX: version, group: byVersion });
    this.#build();
  }

  #build() {
    this.head = h("div", { class: "head" });
    this.conditions = h("div", { id: "conditions", role: "alert" });
    this.findings = h("section", { class: "panel", id: "findings", "aria-label": "what keeps it from learning" });
    this.stages = h("figure", { class: "stages", id: "stages", "aria-label": "stages" });
    this.tiles = h("div", { class: "tiles", id: "tiles" });
    this.spans = h("div", { class: "spans", role: "group", "aria-label": "time shown" });
    this.ledger = h("section", { class: "panel", id: "ledger" });
    this.queues = h("section", { class: "panel", id: "queues" });
    this.matches = h("section", { class: "panel", id: "matches" });
    this.ratings = h("section", { class: "panel", id: "ratings" });
    this.element = h("div", { class: "run" },
      h("div", { class: "bar" }, this.head, this.controls.element), this.stages, this.conditions, this.findings, this.tiles, this.spans,
      h("div", { class: "charts", id: "charts" }, this.charts.map(({ chart }) => chart.element), this.elo.element, this.errors.element,
        this.spent.map(({ chart }) => chart.element)),
      h("div", { class: "charts", id: "learning" }, this.learning.map(({ chart }) => chart.element)),
      h("div", { class: "columns" }, this.fleet.element, h("div", { class: "stack" }, this.queues, this.ledger)),
      this.weights.element, h("div", { class: "columns" }, this.matches, this.ratings));
    this.spans.addEventListener("click", (event) => {
      if (!event.target.dataset.s) return;
      this.span_s = Number(event.target.dataset.s);
      this.drawn_ms = 0;
      this.#drawSpans();
      this.askHistory().catch(() => {});  // the next look, a moment later, tells what is wrong
    });
    this.#drawSpans();
  }

  #drawSpans() {
    show(this.spans, SPANS.map(([text, seconds]) =>
      h("button", { type: "button", class: "quiet", "data-s": seconds, "aria-pressed": String(seconds === this.span_s) }, text)));
  }

  async askStatus() {
    const [status, queues] = await Promise.all([call(path(this.run, "/status")), call("/v1/queues")]);
    this.headline = status.measures[0].kind;
    this.#drawHead(status);
    show(this.stages, stagesStrip(status.stages));
    this.#drawTiles(status);
    this.controls.draw(status, queues);
    this.fleet.draw(status.workers);
    show(this.conditions, status.conditions.map((text) => h("p", {}, text)));
    show(this.queues, queuesPanel(queues));
    show(this.ledger, ledgerPanel(status.ledger), ranksTable(status.ranks));
  }

  async askHistory() {
    const width_ms = (this.span_s * 1000) / POINTS;
    const now = Date.now();
    if (this.drawn_ms && now - this.drawn_ms < Math.min(60_000, width_ms / 2)) return;  // nothing new can be seen yet
    const since = now - this.span_s * 1000;
    const { at_ms, every_ms, columns: figures } = await call(path(this.run, `/history?since_ms=${since}&points=${POINTS}`));
    this.drawn_ms = now;
    const domain = [at_ms.length ? Math.max(since, Math.min(at_ms[0], now - 60_000)) : since, now];
    for (const { chart, columns } of this.charts) {
      chart.update({ x: at_ms, ys: columns.map((name) => figures[name]), gap: Math.max(4 * every_ms, 30_000), domain });
    }
    for (const { chart, role, phases } of this.spent) {
      chart.update({ x: at_ms, ys: spentBy(figures, role, phases, at_ms.length), gap: Math.max(4 * every_ms, 30_000), domain });
    }
  }

  askWeights() {
    return this.weights.ask();
  }

  /** What keeps the run from learning, and the newest games block by block; a game in Python has no games here, its findings say so. */
  async askLearning() {
    const found = await call(path(this.run, "/findings"));
    show(this.findings, findingsPanel(found));
    if (!found.games) return;
    const curves = await call(path(this.run, "/learning"));
    for (const { chart, columns } of this.learning) chart.update({ x: curves.game, ys: columns.map((name) => curves[name]) });
  }

  async askArena() {
    const arena = await call(path(this.run, "/matches"));
    show(this.matches, arenaPanel(arena));
    const scores = arena.scores ?? [];
    show(this.ratings, scores.length ? scoresPanel(scores) : ratingsPanel(arena.ratings));
    const rated = [...arena.ratings, ...scores].map((rating) => ({ ...rating, version: Number(/^weights:(\d+)$/.exec(rating.player)?.[1]) }))
      .filter((rating) => rating.version).sort((one, other) => one.version - other.version);
    if (!this.headline) await this.askStatus();
    const known = scores.length ? rated : rated.filter((one) => !fewGames(one.low, one.high));
    if (rated.length && !known.length) this.elo.empty = "too few games";
    if (scores.length) this.elo.rename("score by weight version", count);
    this.elo.update({ x: known.map((one) => one.version), ys: [known.map((one) => (scores.length ? one.score : one.elo))], bands: { 0: [known.map((one) => one.low), known.map((one) => one.high)] } });
    const newest = new Map(arena.grades.filter((grade) => grade.positions).reverse().map((grade) => [grade.weight_version, grade]));
    const graded = [...newest.values()].sort((one, other) => one.weight_version - other.weight_version);
    const byLoss = this.headline === "loss";
    if (byLoss) this.errors.rename("equity loss by weight version, millipoints", fixed(1));
    this.errors.element.hidden = !byLoss && this.headline !== "errors" && !graded.length;
    this.errors.update({ x: graded.map((one) => one.weight_version), ys: [graded.map((one) => (byLoss ? 1000 * one.mean_loss : one.errors / one.positions))] });
  }

  #drawHead(status) {
    const goals = Object.entries(status.until).map(([goal, limit]) => `${goal} ${count(limit)}`).join(", ");
    show(this.head, h("h1", {}, status.run), h("span", { class: `pill ${status.state}`, id: "state" }, status.state),
      status.draining ? h("span", { class: "pill warn" }, "draining") : "",
      h("span", { class: "muted" }, `active ${clock(status.active_s)}`, goals ? ` · until ${goals} (${percent(status.progress, 0)})` : "",
        status.eta_s === null ? "" : ` · ${clock(status.eta_s)} left`),
      status.reason ? h("span", { class: "muted" }, status.reason) : "");
  }

  #drawTiles(status) {
    const limiter = status.selfplay_stalled ? "self-play waits" : status.learner_waiting ? "learner waits" : "both go on";
    const running = status.state === "running";
    const lost = running && !status.learner_live;
    const step = ["step", lost ? "no learner" : count(status.learner_step), lost ? "bad" : ""];
    const tiles = [
      ...(running ? [] : status.measures.map(({ name, text }) => [name, text])),
      ...(running ? [["games/s", count(status.games_per_s)], ["simulations/s", count(status.simulations_per_s)], ["evaluations/s", count(status.evaluations_per_s)],
        ["mean batch", count(Math.round(status.mean_batch))], ["network busy", percent(status.network_busy, 0)]]
        : [["time", clock(status.active_s)], ["games", count(status.ledger.finished)]]),
      ["open games", count(status.open_games)], ["samples", count(status.samples)], step, ["samples/insert", fixed(2)(status.samples_per_insert)],
      ...(running ? [["limiter", limiter, status.selfplay_stalled ? "warn" : ""]] : []),
      ["weights", weightsTile(status)], ["network", networkSize(status.network)],
      ...(running ? [["policy lag", fixed(1)(status.policy_lag)], ...status.measures.map(({ name, text }) => [name, text])] : []),
      ...(status.cost ? [["cost", costTile(status.cost), status.cost.unpriced.length ? "warn" : ""]] : []),
    ];
    show(this.tiles, tiles.map(([name, value, tone]) => h("div", { class: `tile ${tone ?? ""}`, "data-tile": name }, h("span", {}, name), h("b", {}, value))));
  }
}

/** So far, and what it will have been at the run's end where one is in sight; `+ ?` for machines whose price nobody knows. */
function costTile(cost) {
  const end = cost.ends_money === null ? "" : ` of ${cost.ends_money.toFixed(2)}`;
  return `${cost.money.toFixed(2)}${end} ${cost.currency}${cost.unpriced.length ? " + ?" : ""}`;
}

/** The newest version, and the one that serves where that is another. */
function weightsTile({ weight_version: newest, serving_version: serving }) {
  return serving === newest ? `v${newest}` : `v${newest}, v${serving} serves`;
}

/** The size of the newest weights' network, and where it began if it has grown since. */
function networkSize(network) {
  if (!network) return "–";
  const began = `${network.configured_blocks}x${network.configured_channels}`;
  const now = network.blocks === null ? began : `${network.blocks}x${network.channels}`;
  return now === began ? now : `${now}, from ${began}`;
}

/** A role's columns of shares of time: the named phases, then the sum of all others. */
function spentBy(figures, role, phases, length) {
  const nothing = Array(length).fill(null);
  const named = phases.map((phase) => `spent_${role}_${phase}`);
  const others = Object.keys(figures).filter((name) => name.startsWith(`spent_${role}_`) && !named.includes(name));
  const known = others.length ? figures[others[0]] : nothing;
  const rest = known.map((value, i) => (value === null ? null : others.reduce((sum, name) => sum + figures[name][i], 0)));
  return [...named.map((name) => figures[name] ?? nothing), rest];
}
