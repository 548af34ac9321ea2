// Runs of one game beside each other: curves over each other, figures at their last common point, settings that differ, graded positions, recorded games.

import { call } from "../web/api.js";
import { Chart } from "../web/chart.js";
import { h, show } from "../web/dom.js";
import { count, fixed, percent } from "../web/format.js";
import { MEASURES } from "../web/measures.js";
import { empty, settingText, table } from "./tables.js";

export const AXES = ["minutes", "games", "steps", "cpu-s"];
const POINTS = 300;

export class Comparison {
  /** `choose(by)` is called with the axis that is wanted. */
  constructor(choose) {
    const panel = (id) => h("section", { class: "panel", id });
    this.head = h("div", { class: "bar" });
    this.charts = h("div", { class: "charts two", id: "charts" });
    [this.common, this.settings, this.graded, this.samples] = ["common", "settings", "graded", "samples"].map(panel);
    this.element = h("div", { class: "run", hidden: true }, this.head, this.charts, h("div", { class: "columns" }, this.settings, this.common),
      h("div", { class: "columns" }, this.samples, this.graded));
    this.head.addEventListener("click", ({ target }) => target.dataset.by && choose(target.dataset.by));
  }

  /** Draws the runs of these names over one axis; nothing of fewer than two. */
  async refresh(runs, by) {
    this.element.hidden = runs.length < 2;
    if (this.element.hidden) return;
    const names = runs.map(encodeURIComponent).join(",");
    const wanted = this.wanted = `runs=${names}&by=${by}`;
    const found = await call(`/v1/compare?${wanted}`);
    if (wanted !== this.wanted) return;  // others were chosen meanwhile
    show(this.head, h("h2", {}, runs.join(", ")), h("div", { class: "spans", role: "group", "aria-label": "Axis" },
      AXES.map((one) => h("button", { type: "button", class: "quiet", "data-by": one, "aria-pressed": String(one === by) }, one))));
    this.#drawCharts(found);
    const value = (figure) => MEASURES[figure].format;
    show(this.common, h("h2", {}, "At the last common point"), table(["Figure", `#${found.by}`, ...found.runs.map((run) => `#${run.run}`)],
      found.common.map((row) => ({ key: row.figure, cells: [MEASURES[row.figure].title, count(row.x), ...row.values.map(value(row.figure))] }))));
    show(this.settings, h("h2", {}, "Settings that differ"), found.settings.length
      ? table(["Setting", ...found.runs.map((run) => `#${run.run}`)], found.settings.map((row) => ({ key: row.setting, cells: [row.setting, ...row.values.map(settingText)] })))
      : empty("None"));
    show(this.graded, h("h2", {}, "Same graded positions"), found.graded.length
      ? table(["Run", "#Errors", `#Of ${runs[0]}`, "#Positions", "#Difference (95 %)"], found.graded.map((pair) => ({ key: pair.run,
        cells: [`${pair.run} v${pair.weight_versions[1]}`, ...[...pair.errors].reverse().map((share) => percent(share)), count(pair.positions), difference(pair)] })))
      : empty("No weights graded on the same positions"));
    await this.#showSamples(names, runs[0]);
  }

  /** Asked once: thousands of games are read for it. */
  async #showSamples(names, first) {
    if (this.sampled === names) return;
    this.sampled = names;
    show(this.samples, h("h2", {}, "Recorded games"), empty("Reading …"));
    const found = await call(`/v1/compare/samples?runs=${names}`).catch((error) => {
      this.sampled = "";
      throw error;
    });
    show(this.samples, h("h2", {}, "Recorded games"), Object.entries(found).map(([run, diff]) => [
      h("p", { class: diff.verdict === "differs" ? "warn" : "muted" }, `${run}: ${diff.verdict}; ${count(diff.games[1])} games on the daemon's host, ${count(diff.games[0])} of ${first}`),
      diff.figures.length > 0 && table(["Figure", `#${first}`, `#${run}`, "#Distance", "#p (Holm)", "Verdict"], diff.figures.map((row) => ({ key: row.figure,
        cells: [row.figure, fixed(3)(row.first), fixed(3)(row.second), fixed(3)(row.distance), fixed(4)(row.corrected), row.verdict] })))]));
  }

  #drawCharts({ runs, by }) {
    const known = Object.keys(MEASURES).filter((figure) => runs.some((run) => run.curves[figure]));
    const key = `${runs.map((run) => run.run)} ${by} ${known}`;
    if (this.drawn !== key) {
      this.drawn = key;
      const group = new Set();
      const series = runs.map((run, i) => ({ name: run.run, colour: i + 1 }));
      this.made = known.map((figure) =>
        [figure, new Chart({ ...MEASURES[figure], series, formatX: (value) => `${count(value)} ${by}`, group })]);
      this.charts.replaceChildren(...this.made.map(([, chart]) => chart.element));
    }
    const to = Math.max(...runs.flatMap((run) => Object.values(run.curves).map((curve) => curve.at(-1).x)));
    const x = Array.from({ length: POINTS + 1 }, (_, i) => (to * i) / POINTS);
    for (const [figure, chart] of this.made) {
      const curves = runs.map((run) => run.curves[figure] ?? []);
      const column = (name) => curves.map((curve) => x.map((place) => valueAt(curve, place, name)));
      const [lows, highs] = [column("low"), column("high")];
      chart.update({ x, ys: column("y"), domain: [0, to], bands: Object.fromEntries(curves.map((_, i) => [i, [lows[i], highs[i]]])) });
    }
  }
}

const points = (share) => `${share < 0 ? "−" : "+"}${percent(Math.abs(share))}`;

const difference = ({ difference: of, low, high }) => (low === null ? points(of) : `${points(of)} (${points(low)} … ${points(high)})`);

/** A column of a curve at a place, between two points by proportion; null outside. */
export function valueAt(curve, x, name) {
  const after = curve.findIndex((point) => point.x >= x);
  const [one, other] = [curve[Math.max(0, after - 1)], curve[after]];
  if (after < 0 || one.x > x || one[name] === null) return null;
  return other.x === one.x ? other[name] : one[name] + ((other[name] - one[name]) * (x - one.x)) / (other.x - one.x);
}
