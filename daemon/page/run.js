// One run at work: figures, charts, workers, queues, ledger, matches, and the buttons that change it.

import { call, path } from "../web/api.js";
import { Chart } from "../web/chart.js";
import { Controls } from "./controls.js";
import { h, show } from "../web/dom.js";
import { clock, count, fixed, moment, percent, span } from "../web/format.js";
import { NewestGame, Strength, sentence } from "./front.js";
import { arenaPanel, findingsPanel, ledgerPanel, queuesPanel, ranksTable, ratingsPanel, scoresPanel } from "./tables.js";
import { Weights } from "./weights.js";
import { label, meaning, tile } from "./words.js";
import { Fleet } from "./workers.js";

const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["48 h", 172800]];
const POINTS = 240;
const UNITS = { minutes: "min", games: "games", steps: "steps", money: "spent" };

const group = () => new Set();
const line = (name, colour = 1, more = {}) => ({ name, colour, ...more });
const share = (value) => percent(value, 0);

/** [column names, figure, chart settings] of everything drawn over time. */
const OVER_TIME = [
  [["games_per_s"], "games/s", { format: count }],
  [["evaluations_per_s"], "evaluations/s", { format: count }],
  [["mean_batch"], "mean batch", { format: count }],
  [["network_busy"], "network busy", { format: share, ceiling: 1 }],
  [["policy_lag"], "policy lag", { format: fixed(1), ceiling: 1 }],
  [["loss_policy", "loss_value"], "loss", { format: fixed(3), names: ["policy", "value"] }],
];

/** [columns, figure, chart settings] of recorded games, block by block: what changes while a run learns. */
const LEARNING = [
  [["draws", "first"], "results", { format: share, ceiling: 1, names: ["draws", "first wins"] }],
  [["length"], "length", { format: count }],
  [["entropy"], "entropy", { format: fixed(2) }],
  [["openings"], "openings", { format: share, ceiling: 1 }],
  [["miscalibration"], "miscalibration", { format: fixed(3) }],
  [["age"], "age", { format: fixed(1), ceiling: 1 }],
];

/** Where a role's time goes: [role, phases from the bottom of the chart up]; what is not named is added up as the rest. */
const SPENT = [
  ["selfplay", ["search", "encode", "transport", "ledger", "wait"]],
  ["inference", ["forward", "copy", "collect", "reply", "weights", "idle"]],
  ["learner", ["forward", "loss", "backward", "update", "load", "sync", "idle"]],
];

/** Content behind a heading; whether it is open is kept by the browser. */
function fold(key, title, ...content) {
  const element = h("details", { id: key, open: localStorage.getItem(`azq-fold-${key}`) === "open" }, h("summary", {}, title), content);
  element.addEventListener("toggle", () => localStorage.setItem(`azq-fold-${key}`, element.open ? "open" : ""));
  return element;
}

export class RunView {
  asks = [[1500, this.askStatus], [2000, this.askHistory], [3000, this.askWeights], [5000, this.askArena], [5000, this.askGame], [30_000, this.askFindings], [30_000, this.askLearning]];

  constructor(run) {
    this.run = run;
    this.span_s = SPANS[1][1];
    this.controls = new Controls(run, () => Promise.all([this.askStatus(), this.weights.ask()]));
    this.fleet = new Fleet();
    this.weights = new Weights(run, (action, tell) => this.controls.act(action, tell));
    this.strength = new Strength();
    this.newest = new NewestGame(run);
    const together = group();
    const drawn = (shared, formatX) => ([columns, figure, { names, ...settings }]) => ({
      columns,
      chart: new Chart({ title: label(figure), meaning: meaning(figure), ...settings, series: columns.map((column, i) => line(names?.[i] ?? column, i + 1)), formatX, group: shared }),
    });
    this.charts = OVER_TIME.map(drawn(together, moment));
    this.learning = LEARNING.map(drawn(group(), (value) => `game ${count(value)}`));
    this.spent = SPENT.map(([role, phases]) => ({ role, phases, chart: new Chart({
      title: label(role), meaning: meaning(role), series: [...phases, "rest"].map((phase, i) => line(phase, i + 1)),
      format: share, formatX: moment, ceiling: 1, group: together, stacked: true }) }));
    this.#build();
  }

  leave() {
    this.newest.leave();
  }

  #build() {
    this.head = h("div", { class: "head" });
    this.sentence = h("div", {});
    this.conditions = h("div", { id: "conditions", role: "alert" });
    this.findings = h("section", { class: "panel", id: "findings", "aria-label": "Training problems" });
    this.result = h("div", { class: "tiles", id: "result" });
    this.tiles = h("div", { class: "tiles", id: "tiles" });
    this.spans = h("div", { class: "spans", role: "group", "aria-label": "Time shown" });
    this.ledger = h("section", { class: "panel", id: "ledger" });
    this.queues = h("section", { class: "panel", id: "queues" });
    this.matches = h("section", { class: "panel", id: "matches" });
    this.ratings = h("section", { class: "panel", id: "ratings" });
    const charts = (id, all) => h("div", { class: "charts", id }, all.map(({ chart }) => chart.element));
    this.throughput = fold("throughput", "Throughput", this.tiles, this.spans, charts("charts", [...this.charts, ...this.spent]));
    this.games = fold("self-play", "Self-play games over time", charts("learning", this.learning));
    this.element = h("div", { class: "run" },
      h("div", { class: "bar" }, this.head, this.controls.element), this.sentence, this.conditions, this.result,
      h("div", { class: "front" }, this.strength.element, this.newest.element), this.findings, this.throughput, this.games,
      this.weights.element, h("div", { class: "columns" }, this.matches, this.ratings),
      fold("fleet", "Workers, queues and ledger", h("div", { class: "columns" }, this.fleet.element, h("div", { class: "stack" }, this.queues, this.ledger))));
    for (const [part, ask] of [[this.throughput, this.askHistory], [this.games, this.askLearning]]) part.addEventListener("toggle", () => ask.call(this).catch(() => {}));
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
    const [status, queues] = await Promise.all([call(path(this.run, "/status")), call("/v1/queues")]).catch((error) => this.#refuse(error));
    this.element.classList.remove("absent");
    this.#drawHead(status);
    show(this.sentence, sentence(status, this.finding));
    this.strength.drawStages(status.stages);
    this.#drawTiles(status);
    this.controls.draw(status, queues);
    this.fleet.draw(status.workers);
    show(this.conditions, status.conditions.map((text) => h("p", {}, text)));
    show(this.queues, queuesPanel(queues));
    show(this.ledger, ledgerPanel(status.ledger), ranksTable(status.ranks));
  }

  /** Shows no empty charts where there is no such run. */
  #refuse(error) {
    if (error.status === 404) {
      this.element.classList.add("absent");
      show(this.head, h("h1", {}, this.run));
      show(this.sentence, h("p", { class: "headline bad", role: "status" }, error.message));
    }
    throw error;
  }

  async askHistory() {
    const width_ms = (this.span_s * 1000) / POINTS;
    const now = Date.now();
    if (!this.throughput.open || (this.drawn_ms && now - this.drawn_ms < Math.min(60_000, width_ms / 2))) return;  // nothing new can be seen yet
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

  askGame() {
    return this.newest.ask();
  }

  /** What keeps the run from learning; a game in Python has no games here, its findings say so. */
  async askFindings() {
    const found = await call(path(this.run, "/findings"));
    this.finding = found.headline;
    show(this.findings, findingsPanel(found));
    this.games.hidden = !found.games;
  }

  /** The newest games block by block. */
  async askLearning() {
    if (!this.games.open || this.games.hidden) return;
    const curves = await call(path(this.run, "/learning"));
    for (const { chart, columns } of this.learning) chart.update({ x: curves.game, ys: columns.map((name) => curves[name]) });
  }

  async askArena() {
    const arena = await call(path(this.run, "/matches?limit=20"));
    show(this.matches, arenaPanel(arena));
    show(this.ratings, arena.scores.length ? scoresPanel(arena.scores) : ratingsPanel(arena.ratings));
    this.strength.draw(arena);
  }

  #drawHead(status) {
    show(this.head, h("h1", {}, status.run), h("span", { class: `pill ${status.state}`, id: "state" }, status.state),
      status.draining ? h("span", { class: "pill warn" }, "draining") : "", h("span", { class: "muted" }, status.game.replaceAll("_", " ")),
      h("span", { class: "muted", title: meaning("time") }, timeText(status)), status.reason ? h("span", { class: "muted" }, status.reason) : "");
    document.title = `${status.run}: ${status.game.replaceAll("_", " ")}, ${status.state} · azq`;
  }

  #drawTiles(status) {
    const running = status.state === "running";
    const limiter = status.selfplay_stalled ? "Self-play paused, learner catching up" : status.learner_waiting ? "Learner waiting for games" : "OK";
    const lost = running && !status.learner_live;
    show(this.result, [...status.measures.map(({ name, text }) => [name, text]), ["games", count(status.ledger.finished)], ["time", clock(status.active_s)],
      ...(status.cost?.money ? [["cost", costText(status.cost)]] : [])].map((one) => tile(...one)));
    show(this.tiles, [
      ...(running ? [["games/s", count(status.games_per_s)], ["simulations/s", count(status.simulations_per_s)], ["evaluations/s", count(status.evaluations_per_s)],
        ["mean batch", count(Math.round(status.mean_batch))], ["network busy", share(status.network_busy)]] : []),
      ["open games", count(status.open_games)], ["samples", count(status.samples)], ["step", lost ? "No learner" : count(status.learner_step), lost ? "bad" : ""],
      ["samples/insert", fixed(2)(status.samples_per_insert)], ...(running ? [["limiter", limiter, status.selfplay_stalled ? "warn" : ""]] : []),
      ["weights", weightsTile(status)], ["network", networkSize(status.network)], ...(running ? [["policy lag", fixed(1)(status.policy_lag)]] : []),
    ].map((one) => tile(...one)));
  }
}

/** 1 of 14 min, 12 min left. */
function timeText({ active_s, until, eta_s }) {
  const { minutes, ...others } = until;
  const goals = Object.entries(others).map(([goal, limit]) => `until ${count(limit)} ${UNITS[goal] ?? goal}`);
  const time = minutes ? `${fixed(active_s < 600 ? 1 : 0)(active_s / 60)} of ${count(minutes)} min` : `active ${clock(active_s)}`;
  return [time, ...goals, ...(eta_s === null ? [] : [`${span(eta_s)} left`])].join(" · ");
}

/** So far, and what it will have been at the run's end where one is in sight. */
function costText(cost) {
  const end = cost.ends_money === null ? "" : ` of ${cost.ends_money.toFixed(2)}`;
  return `${cost.money.toFixed(2)}${end} ${cost.currency}${cost.unpriced.length ? `, ${cost.unpriced.length} without a price` : ""}`;
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
