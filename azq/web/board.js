// Positions as pictures where their text is a grid of x, o and dots, else as text.

import { h, s } from "./dom.js";

const CELL = 30;
const EMPTY = ".";

/** {indents, rows} of a text of equally long rows of single characters, else null. Growing indents make it a board of hexagons. */
export function parseGrid(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const rows = lines.map((line) => (/^(\S )*\S$/.test(line.trim()) ? line.trim().split(" ") : [...line.trim()]));
  const width = rows[0]?.length ?? 0;
  const fits = rows.length >= 2 && width >= 2 && rows.every((row) => row.length === width && row.every((cell) => /^[.xo]$/i.test(cell)));
  return fits ? { indents: lines.map((line) => line.length - line.trimStart().length), rows } : null;
}

/** The position; cells that differ from `before` are marked. */
export function board(text, before = "") {
  const grid = parseGrid(text);
  if (!grid) return h("pre", { class: "position" }, text);
  const old = parseGrid(before);
  const slanted = grid.indents.some((indent, i) => indent !== grid.indents[0] && i);
  const centre = (row, column) => (slanted
    ? [(column + 0.5 + grid.indents[row] / 2) * CELL, (row * 0.866 + 0.6) * CELL]
    : [(column + 0.5) * CELL, (row + 0.5) * CELL]);
  const [right] = centre(grid.rows.length - 1, grid.rows[0].length - 1);
  const [, bottom] = centre(grid.rows.length - 1, 0);
  const cells = grid.rows.flatMap((row, r) => row.map((cell, c) => drawCell(cell, centre(r, c), slanted, old && old.rows[r]?.[c] !== cell)));
  return s("svg", { class: "position", role: "img", "aria-label": text, viewBox: `0 0 ${right + 0.5 * CELL} ${bottom + 0.6 * CELL}` }, cells);
}

function drawCell(cell, [x, y], slanted, changed) {
  const corners = [0, 1, 2, 3, 4, 5].map((i) => (Math.PI / 3) * i + Math.PI / 6)
    .map((angle) => `${(x + 0.577 * CELL * Math.cos(angle)).toFixed(1)},${(y + 0.577 * CELL * Math.sin(angle)).toFixed(1)}`);
  const field = slanted ? s("polygon", { points: corners.join(" "), class: "field" })
    : s("rect", { x: x - CELL / 2, y: y - CELL / 2, width: CELL, height: CELL, class: "field" });
  if (cell === EMPTY) return s("g", {}, field);
  const player = cell.toLowerCase() === "x" ? 0 : 1;
  const disc = s("circle", { cx: x, cy: y, r: CELL * 0.38, class: `disc p${player}` });
  return s("g", { "data-disc": player }, field, disc, changed ? s("circle", { cx: x, cy: y, r: CELL * 0.12, class: "newest" }) : "");
}
