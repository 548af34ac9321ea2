// A study: its trials as lines over all settings, what mattered, a table.

import { call } from "../web/api.js";
import { h, s, show } from "../web/dom.js";
import { ago, percent } from "../web/format.js";
import { Grid } from "./grid.js";
import { empty, figure, table } from "./tables.js";

const WIDTH = 940;
const [LEFT, STEP_TOP, TOP, BOTTOM] = [70, 14, 50, 290];

export class StudyView {
  asks = [[5000, this.refresh]];

  constructor(study) {
    this.study = study;
    this.head = h("div", { class: "head" });
    this.lines = h("section", { class: "panel", id: "parallel" });
    this.mattered = h("section", { class: "panel", id: "importances" });
    this.trials = new Grid({ id: "trials", title: "Trials", heading: "h2", sort: { by: "Rank", down: false }, none: "No measurements yet",
      text: (trial) => `${trial.state} ${Object.values(trial.settings).join(" ")}`, key: (trial) => `t${trial.number}` });
    this.element = h("div", { class: "run" }, this.head, this.lines, h("div", { class: "columns" }, this.trials.element, this.mattered));
    for (const [kind, there] of [["mouseover", true], ["mouseout", false]]) {
      this.element.addEventListener(kind, ({ target }) => this.#point(target.closest("[data-key]")?.dataset.key, there));
    }
  }

  /** Shows which line and which row are one trial. */
  #point(key, there) {
    if (!/^t\d+$/.test(key ?? "")) return;
    for (const element of this.element.querySelectorAll(`[data-key="${key}"]`)) element.classList.toggle("pointed", there);
  }

  async refresh() {
    const study = await call(`/v1/studies/${encodeURIComponent(this.study)}`);
    const names = Object.keys(study.trials[0]?.settings ?? {});
    const sign = study.upwards ? -1 : 1;
    const ranked = study.trials.filter((trial) => trial.value !== null).sort((one, other) => sign * (one.value - other.value));
    const states = Object.entries(Object.groupBy(study.trials, (trial) => trial.state)).map(([state, trials]) => `${trials.length} ${state}`);
    show(this.head, h("h1", {}, study.study), h("span", { class: "muted" },
      `${study.game}, ${study.metric} after ${study.until}: ${states.join(", ") || "no trial yet"}; ${ago(study.sent_ms)}`));
    show(this.lines, h("h2", {}, "All trials ", h("span", { class: "muted" }, "Best third dark. Dashed: running or pruned.")), parallel([...names, study.metric],
      ranked.map((trial) => ({ ...trial, values: [...names.map((name) => trial.settings[name]), trial.value] })), study.log));
    const shares = Object.entries(study.importances);
    show(this.mattered, h("h2", {}, "Parameter importance"), shares.length ? table(["Setting", "#Share", "Bar"], shares.map(([name, share]) => ({
      key: name, cells: [name, percent(share, 0), h("td", { class: "wide" }, bar(share))] }))) : h("p", { class: "empty" }, "Needs 4 finished trials"));
    const column = (name, key) => ({ name, key, cell: (trial) => figure(key(trial)), number: true });
    this.trials.draw([column("Rank", (trial) => ranked.indexOf(trial) + 1), column("Trial", (trial) => trial.number), column(study.metric, (trial) => trial.value),
      { name: "State", key: (trial) => trial.state, cell: (trial) => h("span", { class: `pill ${trial.state}` }, trial.state) },
      ...names.map((name) => column(name, (trial) => trial.settings[name]))], ranked);
  }
}

const short = (name) => name.split(".").at(-1);

const bar = (share) => s("svg", { class: "share", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
  s("rect", { x: 0, y: 1, width: 100 * share, height: 8 }));

/** Parallel coordinates (Inselberg, 1985): an axis a setting, the metric last; a line a trial. */
function parallel(names, trials, log) {
  const step = (WIDTH - 2 * LEFT) / Math.max(1, names.length - 1);
  const axes = names.map((name, i) => scale(trials.map((trial) => trial.values[i]), log.includes(name)));
  const drawn = trials.map((trial, rank) => s("polyline", { "data-key": `t${trial.number}`,
    class: `${3 * rank < trials.length ? "good" : ""} ${trial.state === "complete" ? "" : "part"}`,
    points: trial.values.map((value, i) => `${(LEFT + step * i).toFixed(1)},${(BOTTOM - (BOTTOM - TOP) * axes[i].place(value)).toFixed(1)}`).join(" ") },
  s("title", {}, `trial ${trial.number} (${trial.state}): ${names.map((name, i) => `${short(name)} ${figure(trial.values[i])}`).join(", ")}`)));
  const marks = names.flatMap((name, i) => [s("line", { x1: LEFT + step * i, x2: LEFT + step * i, y1: TOP, y2: BOTTOM }),
    ...[[STEP_TOP + 13 * (i % 2), name], [TOP - 5, axes[i].high], [BOTTOM + 15, axes[i].low]].map(([y, text]) => s("text", { x: LEFT + step * i, y }, text))]);
  return s("svg", { class: "parallel", viewBox: `0 0 ${WIDTH} 310`, role: "img", "aria-label": "parallel coordinates" }, drawn.reverse(), marks);
}

/** Where values stand on an axis, 0 to 1, and what its ends are called; names stand at equal distances. */
function scale(values, log) {
  const known = [...new Set(values)];
  const numeric = known.every((value) => typeof value === "number");
  const order = numeric ? known.sort((one, other) => one - other) : known.sort();
  const at = (value) => (numeric ? (log ? Math.log(value) : value) : order.indexOf(value));
  const [low, high] = [at(order[0]), at(order.at(-1))];
  return { place: (value) => (at(value) - low) / (high - low || 1), low: order.length ? figure(order[0]) : "", high: order.length ? figure(order.at(-1)) : "" };
}
