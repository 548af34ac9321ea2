// All runs in one table: sorted by any column, filtered by words, several of them compared.

import { call } from "../web/api.js";
import { h, s, show } from "../web/dom.js";
import { ago, clock, count } from "../web/format.js";

/** [name, what it is sorted by, whether numbers stand in it]. */
const COLUMNS = [
  ["Run", (run) => run.name], ["Game", (run) => run.game], ["State", (run) => run.state], ["Strength", (run) => run.figures.measure],
  ["Newest", (run) => run.figures.way.at(-1) ?? -Infinity, true], ["Games", (run) => run.figures.games, true], ["Active", (run) => run.active_s, true], ["Created", (run) => run.created_ms, true],
];

/** The runs that the words name, in the order of a column. Pure. */
export function listed(runs, words, column, down) {
  const has = (run) => words.toLowerCase().split(/\s+/).every((word) => `${run.name} ${run.game} ${run.state} ${run.reason}`.toLowerCase().includes(word));
  const key = COLUMNS[column][1];
  const order = (one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0);
  return runs.filter(has).sort((one, other) => (down ? order(other, one) : order(one, other)));
}

export class Overview {
  asks = [[4000, this.refresh]];
  #runs = null;
  #chosen = new Set();
  #sort = { column: COLUMNS.length - 1, down: true };

  constructor() {
    this.words = h("input", { type: "search", placeholder: "Filter by name, game or state", "aria-label": "Filter runs" });
    this.compare = h("button", { type: "button", class: "first", disabled: true }, "Compare");
    this.table = h("div", { class: "scroll", tabindex: 0 });
    this.element = h("section", { class: "panel" }, h("div", { class: "bar" }, h("h1", {}, "Runs"), h("span", { class: "controls" }, this.words, this.compare)), this.table);
    this.words.addEventListener("input", () => this.#draw());
    this.compare.addEventListener("click", () => {
      const [first, ...others] = this.#chosen;
      location.hash = `#/compare/${encodeURIComponent(first)}/${encodeURIComponent(others.join(","))}`;
    });
    this.table.addEventListener("change", ({ target }) => {
      this.#chosen[target.checked ? "add" : "delete"](target.value);
      this.#draw();
    });
    this.table.addEventListener("click", ({ target }) => {
      if (!target.dataset.column) return;
      const column = Number(target.dataset.column);
      this.#sort = { column, down: this.#sort.column === column ? !this.#sort.down : Boolean(COLUMNS[column][2]) };
      this.#draw();
    });
  }

  async refresh() {
    this.#runs = await call("/v1/runs?figures=true");
    this.#draw();
  }

  #draw() {
    if (!this.#runs) return;
    const { column, down } = this.#sort;
    const chosen = this.#runs.filter((run) => this.#chosen.has(run.name));
    this.compare.disabled = chosen.length < 2 || new Set(chosen.map((run) => run.game)).size > 1;
    this.compare.title = "Select two or more runs of the same game";
    const head = COLUMNS.map(([name, , number], i) => h("th", { scope: "col", class: number && "number", "aria-sort": i === column && (down ? "descending" : "ascending") },
      h("button", { type: "button", class: "quiet", "data-column": i }, name, i === column ? (down ? " ▾" : " ▴") : "")));
    const rows = listed(this.#runs, this.words.value, column, down).map((run) => this.#row(run));
    show(this.table, rows.length ? h("table", { id: "runs-table" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Compare")), head)), h("tbody", {}, rows))
      : h("p", { class: "empty" }, this.#runs.length ? "No run matches the filter" : "No runs yet. Start one with `azq up`."));
  }

  #row(run) {
    const { measure, text, way, games } = run.figures;
    const number = (value) => h("td", { class: "number" }, value);
    return h("tr", { "data-key": run.name },
      h("td", {}, h("input", { type: "checkbox", value: run.name, checked: this.#chosen.has(run.name), "aria-label": `Compare ${run.name}` })),
      h("td", {}, h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, run.name)), h("td", {}, run.game.replaceAll("_", " ")),
      h("td", { title: run.reason }, h("span", { class: `pill ${run.state}` }, run.state)),
      h("td", {}, measure, " ", sparkline(way)), number(text), number(count(games)), number(clock(run.active_s)), number(ago(run.created_ms)));
  }
}

/** A way in the size of a word. */
function sparkline(values) {
  if (values.length < 2) return "";
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = (value, i) => `${((60 * i) / (values.length - 1)).toFixed(1)},${(14 - (12 * (value - low)) / (high - low || 1)).toFixed(1)}`;
  return s("svg", { class: "sparkline", viewBox: "0 0 60 16", width: 60, height: 16, "aria-hidden": "true" }, s("polyline", { points: values.map(at).join(" ") }));
}
