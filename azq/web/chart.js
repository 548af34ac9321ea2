// A line chart in SVG. Values stand in its head: the newest, or those under the pointer; charts of one group point at the same moment.

import { h, s } from "./dom.js";

const PAD = { left: 44, right: 8, top: 6, bottom: 18 };

export class Chart {
  /**
   * series: [{name, colour (1..8), points, band: [low, high] columns}]; format: value to text; formatX: x to text; meaning: its tooltip;
   * floor and ceiling: values that the axis always shows; group: a Set of charts that share the x axis;
   * stacked: areas one upon the other, the first series lowest; empty: what stands there before the first value.
   */
  constructor({ title, series, format, formatX, floor = 0, ceiling = null, group = null, onPick = null, stacked = false, empty = "Nothing recorded yet", height = 118, meaning = null }) {
    Object.assign(this, { title, series, format, formatX, floor, ceiling, group, onPick, stacked, empty, height });
    this.data = { x: [], ys: series.map(() => []), gap: Infinity, domain: null };
    this.legend = h("span", { class: "legend" });
    this.plot = s("svg", { role: "img", tabindex: 0, height });
    this.element = h("figure", { class: stacked ? "chart stacked" : "chart", "data-chart": title }, h("figcaption", {}, this.name = h("span", { title: meaning }, title), this.legend), this.plot);
    this.plot.addEventListener("pointermove", (event) => this.#point(this.#nearest(event.offsetX)));
    this.plot.addEventListener("pointerleave", () => this.#point(null));
    this.plot.addEventListener("blur", () => this.#point(null));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    this.plot.addEventListener("click", (event) => this.onPick?.(this.data.x[this.#nearest(event.offsetX)]));
    new ResizeObserver(() => this.draw()).observe(this.element);
    group?.add(this);
  }

  /** x: ascending numbers; ys: a column per series, null where unknown; bands: {series index: [lows, highs]}; shades: [{from, to, colour, text}]; labels: what each x is called. */
  update({ x, ys, bands = {}, gap = Infinity, domain = null, shades = [], labels = [] }) {
    this.data = { x, ys, bands, gap, domain, shades, labels };
    this.draw();
  }

  /** Shows another figure from the next update on. */
  rename({ title, format, floor = 0, meaning }) {
    Object.assign(this, { title, format, floor });
    this.name.textContent = this.element.dataset.chart = title;
    this.name.title = meaning;
  }

  /** Points at the place nearest to an x; null: at none. */
  pointAt(value) {
    const { x } = this.data;
    this.at = value === null || !x.length ? null : x.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(x[best] - value) ? i : best), 0);
    this.#mark();
  }

  draw() {
    this.width = Math.max(120, this.element.clientWidth - 2);
    const { x, ys, bands = {}, shades = [] } = this.data;
    const domain = this.data.domain ?? (x.length === 1 ? [x[0] - 1, x[0] + 1] : null);  // one point stands in the middle
    const tops = this.stacked ? stack(ys) : ys;
    const shown = [...tops.flat(), ...Object.values(bands).flat(2)].filter((value) => value !== null && value !== undefined);
    const ticks = niceTicks(Math.min(this.floor ?? Infinity, ...shown), Math.max(this.ceiling ?? -Infinity, ...(this.stacked && this.ceiling !== null ? [] : shown)), 3);  // shares of one whole go no higher
    const [low, high] = [ticks[0], ticks.at(-1)];
    const [from, to] = domain ?? [x[0] ?? 0, x.at(-1) ?? 1];
    this.toX = (value) => PAD.left + ((value - from) / (to - from || 1)) * (this.width - PAD.left - PAD.right);
    this.toY = (value) => PAD.top + (1 - (value - low) / (high - low || 1)) * (this.height - PAD.top - PAD.bottom);
    this.plot.setAttribute("width", this.width);
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.plot.setAttribute("aria-label", `${this.title}: ${this.#sentence()}`);
    this.cursor = s("g", { class: "cursor" });
    this.plot.replaceChildren(
      ...shades.map((one) => this.#shade(one)),
      ...ticks.map((tick) => this.#gridLine(tick)),
      ...this.#timeLabels(from, to),
      ...Object.entries(bands).map(([index, band]) => this.#band(Number(index), band)),
      ...this.series.map((one, index) => (this.stacked ? this.#area(one, tops[index - 1], tops[index]) : this.#line(one, ys[index] ?? []))),
      this.cursor,
      x.length ? "" : s("text", { x: this.width / 2, y: this.height / 2, class: "empty" }, this.empty),
    );
    this.#mark();
  }

  #gridLine(tick) {
    const y = this.toY(tick);
    return s("g", {}, s("line", { x1: PAD.left, x2: this.width - PAD.right, y1: y, y2: y, class: "grid" }),
      this.data.x.length ? s("text", { x: PAD.left - 6, y: y + 3.5, class: "tick end" }, this.format(tick)) : null);
  }

  #shade({ from, to, colour, text }) {
    return s("rect", { x: this.toX(from), width: Math.max(2, this.toX(to) - this.toX(from)), y: PAD.top, height: this.height - PAD.top - PAD.bottom, class: `stage c${colour}` }, s("title", {}, text));
  }

  #timeLabels(from, to) {
    const { x, domain } = this.data;
    if (!x.length) return [];
    if (x.length === 1 && !domain) return [s("text", { x: this.toX(x[0]), y: this.height - 4, class: "tick middle" }, this.formatX(x[0]))];
    const places = [[from, "start"], [(from + to) / 2, "middle"], [to, "end"]];
    return places.map(([value, side]) => s("text", { x: this.toX(value), y: this.height - 4, class: `tick ${side}` }, this.formatX(value)));
  }

  #line(one, values) {
    const { x, gap } = this.data;
    let path = "", before = null, alone = [];
    values.forEach((value, i) => {
      if (value === null || value === undefined) return void (before = null);
      const joined = before !== null && x[i] - before <= gap;
      path += `${joined ? "L" : "M"}${this.toX(x[i]).toFixed(1)} ${this.toY(value).toFixed(1)}`;
      const followed = i + 1 < x.length && values[i + 1] !== null && x[i + 1] - x[i] <= gap;
      if (one.points || (!joined && !followed)) alone.push(s("circle", { cx: this.toX(x[i]), cy: this.toY(value), r: 2, class: "dot" }));
      before = x[i];
    });
    return s("g", { class: `series c${one.colour}` }, s("path", { d: path || "M0 0" }), alone);
  }

  #area(one, lows, highs) {
    const { x, gap } = this.data;
    const pieces = [[]];
    highs.forEach((high, i) => {
      if (high === null || (i && x[i] - x[i - 1] > gap)) pieces.push([]);
      if (high !== null) pieces.at(-1).push(i);
    });
    const edge = (values, places) => places.map((i) => `${this.toX(x[i]).toFixed(1)} ${this.toY(values ? values[i] : 0).toFixed(1)}`);
    const path = pieces.filter((piece) => piece.length > 1).map((piece) => `M${[...edge(highs, piece), ...edge(lows, [...piece].reverse())].join("L")}Z`);
    return s("path", { class: `area c${one.colour}`, d: path.join("") || "M0 0" });
  }

  #band(index, [lows, highs]) {
    const { x } = this.data;
    const edge = (values) => values.flatMap((value, i) => (value === null ? [] : `${this.toX(x[i]).toFixed(1)} ${this.toY(value).toFixed(1)}`));
    return s("path", { class: `band c${this.series[index].colour}`, d: edge(lows).length ? `M${[...edge(highs), ...edge(lows).reverse()].join("L")}Z` : "M0 0" });
  }

  #nearest(offset) {
    const { x } = this.data;
    return x.length ? x.reduce((best, one, i) => (Math.abs(this.toX(one) - offset) < Math.abs(this.toX(x[best]) - offset) ? i : best), 0) : null;
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const last = this.data.x.length - 1;
    if (!step || last < 0) return;
    event.preventDefault();
    event.stopPropagation();
    this.#point(Math.min(last, Math.max(0, (this.at ?? last) + step)));
    this.onPick?.(this.data.x[this.at]);
  }

  #point(index) {
    const value = index === null ? null : this.data.x[index];
    for (const chart of this.group ?? [this]) chart.pointAt(value);
  }

  #mark() {
    const { x, ys, labels = [] } = this.data;
    const at = this.at ?? null;
    const named = this.series.length > 1;
    this.legend.replaceChildren(...this.series.map((one, index) => {
      const values = ys[index] ?? [];
      const value = at === null ? values.findLast((each) => each !== null && each !== undefined) : values[at];
      return h("span", { class: `value c${one.colour}` }, named ? h("i", {}, one.name) : "", this.format(value ?? null));
    }), at === null ? "" : h("span", { class: "when" }, labels[at] ?? this.formatX(x[at])));
    if (at === null) return this.cursor.replaceChildren();
    const left = this.toX(x[at]);
    this.cursor.replaceChildren(s("line", { x1: left, x2: left, y1: PAD.top, y2: this.height - PAD.bottom }),
      ...this.series.flatMap((one, index) => (!this.stacked && typeof ys[index]?.[at] === "number"
        ? [s("circle", { cx: left, cy: this.toY(ys[index][at]), r: 3, class: `dot c${one.colour}` })] : [])));
  }

  #sentence() {
    return this.series.map((one, i) => `${one.name} ${this.format(this.data.ys[i]?.findLast((value) => value !== null) ?? null)}`).join(", ");
  }
}

/** Columns added up from the first on; null where no column knows anything. */
export function stack(columns) {
  let below = null;
  return columns.map((column) => (below = column.map((_, i) => {
    const known = columns.some((each) => typeof each[i] === "number");
    return known ? (below?.[i] ?? 0) + (column[i] ?? 0) : null;
  })));
}

/** About `wanted` round values from at most `low` to at least `high`. */
export function niceTicks(low, high, wanted) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) [low, high] = [0, 1];
  if (high - low < 1e-9) high = low + (Math.abs(low) || 1);
  const raw = (high - low) / wanted;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((each) => each >= raw * 0.999);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
