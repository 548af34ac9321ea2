// The tiles of 2048: moved by swipes, arrow keys or the buttons.

import { h, s } from "../dom.js";
import { CELL } from "./places.js";

export const isTiles = (text) => /^( +(\d+|\.)){4}\n[^]*^score \d+$/m.test(text);
export const scoreOf = (text) => Number(/^score (\d+)$/m.exec(text)?.[1] ?? 0);

const rowsOf = (text) => text.split("\n").map((line) => line.trim().split(/ +/)).filter((row) => row.length > 1 && !row.includes("score"));
const FROM = { up: [0, 1], down: [0, -1], left: [1, 0], right: [-1, 0] };
const SIZE = [0, 17, 17, 15, 12, 9.5];  // of figures, by how many there are

export function drawTiles({ text, before = "", last, hint, actions = [] }) {
  const rows = rowsOf(text), old = rowsOf(before);
  const [dx, dy] = FROM[last?.text] ?? [];
  const tile = (value, r, c) => {
    const changed = value !== "." && old[r]?.[c] !== value;
    const motion = changed ? (dx === undefined ? "pop" : `${dx * CELL},${dy * CELL}`) : null;
    return value === "." ? "" : s("g", { class: `block t${Math.min(Math.log2(value), 12)}`, "data-motion": motion },
      s("rect", { x: c * CELL + 2, y: r * CELL + 2, width: CELL - 4, height: CELL - 4, rx: 4 }),
      s("text", { x: (c + 0.5) * CELL, y: (r + 0.5) * CELL, "font-size": SIZE[value.length] ?? 8 }, value));
  };
  const pointed = actions.find(({ action }) => action === hint)?.text;
  return h("div", { class: "position" }, h("p", { class: "score" }, "Score ", h("b", {}, scoreOf(text)), pointed ? h("span", { class: "good" }, ` · hint: ${pointed}`) : ""),
    s("svg", { class: "position swipes", role: "img", "aria-label": rows.map((row) => row.join(" ")).join("; ").replaceAll(".", "empty"), viewBox: `-2 -2 ${4 * CELL + 4} ${4 * CELL + 4}` },
      s("rect", { class: "frame", x: -2, y: -2, width: 4 * CELL + 4, height: 4 * CELL + 4, rx: 6 }),
      rows.map((row, r) => row.map((value, c) => s("g", { "data-tile": value }, s("rect", { class: "hollow", x: c * CELL + 2, y: r * CELL + 2, width: CELL - 4, height: CELL - 4, rx: 4 }), tile(value, r, c))))));
}
