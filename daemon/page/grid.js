// A table that a person arranges: rows filtered by words, sorted by any column, columns chosen; the browser keeps order and choice.

import { h, show } from "../web/dom.js";

/** The rows whose text has all words, in the order of a column. Pure. */
export function listed(rows, words, text, key, down) {
  const has = (row) => words.toLowerCase().split(/\s+/).every((word) => text(row).toLowerCase().includes(word));
  const order = (one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0);
  return rows.filter(has).sort((one, other) => (down ? order(other, one) : order(one, other)));
}

export class Grid {
  #rows = null;
  #columns = [];

  /** text(row): what words are looked for in; key(row): its name; sort: {by: a column's name, down}; more: controls beside the filter. */
  constructor({ id, title, heading = "h1", text, key, sort, none, more = [] }) {
    Object.assign(this, { id, text, key, none });
    this.kept = { sort, toggled: [], ...JSON.parse(localStorage.getItem(`azq-table-${id}`) ?? "{}") };
    this.words = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title.toLowerCase()}` });
    this.choice = h("div", { class: "panel" });
    this.table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title });
    this.element = h("section", { class: "panel", id }, h("div", { class: "bar" }, h(heading, {}, title),
      h("div", { class: "controls" }, this.words, h("details", { class: "choice" }, h("summary", {}, "Columns"), this.choice), more)), this.table);
    this.words.addEventListener("input", () => this.#show());
    this.choice.addEventListener("change", ({ target }) => this.#toggle(target.name));
    this.table.addEventListener("click", ({ target }) => target.dataset.column && this.#sortBy(target.dataset.column));
  }

  /** columns: [{name, key(row): what it is sorted by, cell(row), number: numbers stand in it, more: shown to those who choose it}]. */
  draw(columns, rows) {
    this.#columns = columns;
    this.#rows = rows;
    this.#show();
  }

  #toggle(name) {
    const { toggled } = this.kept;
    this.#keep({ toggled: toggled.includes(name) ? toggled.filter((one) => one !== name) : [...toggled, name] });
  }

  #sortBy(name) {
    const { by, down } = this.kept.sort;
    this.#keep({ sort: { by: name, down: by === name ? !down : Boolean(this.#columns.find((column) => column.name === name).number) } });
  }

  #keep(change) {
    localStorage.setItem(`azq-table-${this.id}`, JSON.stringify(Object.assign(this.kept, change)));
    this.#show();
  }

  #show() {
    if (!this.#rows) return;
    const { sort: { by, down }, toggled } = this.kept;
    const shown = (column) => Boolean(column.more) === toggled.includes(column.name);
    const columns = this.#columns.filter(shown);
    const sorted = this.#columns.find(({ name }) => name === by) ?? this.#columns[0];
    const rows = listed(this.#rows, this.words.value, this.text, sorted.key, down);
    show(this.choice, this.#columns.map((column) => h("label", {}, h("input", { type: "checkbox", name: column.name, checked: shown(column) }), column.name)));
    const head = columns.map(({ name, number }) => h("th", { scope: "col", class: number && "number", "aria-sort": name === by && (down ? "descending" : "ascending") },
      h("button", { type: "button", class: "quiet", "data-column": name }, name, name === by ? (down ? " ▾" : " ▴") : "")));
    const cell = (column, value) => (value instanceof Element && value.tagName === "TD" ? value : h("td", { class: column.number && "number" }, value));
    show(this.table, rows.length ? h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((row) => h("tr", { "data-key": this.key(row) },
      columns.map((column) => cell(column, column.cell(row))))))) : h("p", { class: "empty" }, this.#rows.length ? "No row has these words" : this.none));
    for (const box of this.table.querySelectorAll("[type=checkbox]")) box.checked = box.hasAttribute("checked");  // the address changes it, too
  }
}
