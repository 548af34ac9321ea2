// All runs in one table; those of one game that are chosen there lie over each other below it, and the sweeps below that.

import { call } from "../web/api.js";
import { h, s, show } from "../web/dom.js";
import { ago, clock, count } from "../web/format.js";
import { AXES, Comparison } from "./compare.js";
import { Grid } from "./grid.js";
import { figure, settingText, table } from "./tables.js";

const COLUMNS = [
  { name: "Game", key: (run) => run.game, cell: (run) => run.game.replaceAll("_", " ") },
  { name: "State", key: (run) => run.state, cell: (run) => h("td", { title: run.reason }, h("span", { class: `pill ${run.state}` }, run.state)) },
  { name: "Strength", key: (run) => run.figures.measure, cell: ({ figures: { measure, way } }) => h("td", {}, measure, " ", sparkline(way)) },
  { name: "Newest", key: (run) => run.figures.way.at(-1) ?? -Infinity, cell: (run) => run.figures.text, number: true },
  { name: "Games", key: (run) => run.figures.games, cell: (run) => count(run.figures.games), number: true },
  { name: "Active", key: (run) => run.active_s, cell: (run) => clock(run.active_s), number: true },
  { name: "Created", key: (run) => run.created_ms, cell: (run) => ago(run.created_ms), number: true },
];

export class Overview {
  asks = [[4000, this.refresh], [20_000, this.refreshComparison]];  // whole histories are compared: nothing new can be seen sooner
  #chosen = [];
  #runs = [];

  constructor() {
    this.grid = new Grid({ id: "all-runs", title: "Runs", sort: { by: "Created", down: true }, none: "No runs yet. Start one with `azq up`.", more: [h("span", { class: "muted" }, "Select runs of one game to compare them")],
      text: (run) => `${run.name} ${run.game} ${run.state} ${run.reason}`, key: (run) => run.name });
    this.comparison = new Comparison((by) => this.#go(this.#chosen, by));
    this.sweeps = h("section", { class: "panel", id: "sweeps", hidden: true });
    this.element = h("div", { class: "run" }, this.grid.element, this.comparison.element, this.sweeps);
    this.grid.table.addEventListener("change", ({ target: { value, checked } }) =>
      this.#go([...this.#chosen.filter((name) => name !== value), ...(checked ? [value] : [])], this.by));
  }

  /** Chooses the runs, joined by commas, and the axis that the address names. */
  goTo([by], names) {
    this.#chosen = names.split(",").filter(Boolean);
    this.by = AXES.includes(by) ? by : AXES[0];
    this.#draw();
    this.refreshComparison().catch(() => {});  // the page requests it again
  }

  #go(names, by) {
    location.hash = `#/runs/${encodeURIComponent(names.join(","))}/${by}`;
  }

  async refresh() {
    const [runs, studies] = await Promise.all([call("/v1/runs?figures=true"), call("/v1/studies")]);
    this.#runs = runs;
    this.#draw();
    this.sweeps.hidden = !studies.length;
    show(this.sweeps, h("h2", {}, "Sweeps"), table(["Study", "Game", "Metric", "Until", "#Best", "#Last report"], studies.map((one) => ({ key: one.study, cells: [
      h("a", { href: `#/studies/${encodeURIComponent(one.study)}` }, one.study), one.game, one.metric, one.until, figure(one.best?.value ?? null), ago(one.sent_ms)] }))));
  }

  async refreshComparison() {
    const games = new Set(this.#runs.filter((run) => this.#chosen.includes(run.name)).map((run) => run.game));
    await this.comparison.refresh(games.size > 1 ? [] : this.#chosen, this.by);
  }

  #draw() {
    const name = { name: "Run", key: (run) => run.name, cell: (run) => h("td", {}, h("label", {},
      h("input", { type: "checkbox", value: run.name, checked: this.#chosen.includes(run.name), "aria-label": `Compare ${run.name}` })),
    h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, run.name)) };
    this.grid.draw([name, ...COLUMNS, ...settingColumns(this.#runs)], this.#runs);
  }
}

/** A column of each setting in which the runs differ, for those who choose it. */
function settingColumns(runs) {
  const value = (run, section, setting) => run.sections[section]?.[setting] ?? null;
  const pairs = new Map(runs.flatMap((run) => Object.entries(run.sections).flatMap(([section, settings]) => Object.keys(settings).map((setting) => [`${section}.${setting}`, [section, setting]]))));
  return [...pairs].filter(([, place]) => new Set(runs.map((run) => settingText(value(run, ...place)))).size > 1).map(([name, place]) => ({
    name, key: (run) => value(run, ...place) ?? "", cell: (run) => settingText(value(run, ...place)), more: true,
    number: runs.every((run) => typeof value(run, ...place) === "number") }));
}

/** A way in the size of a word. */
function sparkline(values) {
  if (values.length < 2) return "";
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = (value, i) => `${((60 * i) / (values.length - 1)).toFixed(1)},${(14 - (12 * (value - low)) / (high - low || 1)).toFixed(1)}`;
  return s("svg", { class: "sparkline", viewBox: "0 0 60 16", width: 60, height: 16, "aria-hidden": "true" }, s("polyline", { points: values.map(at).join(" ") }));
}
