// Boards of squares, points, columns and hexagons, from rows of x and o.

import { s } from "../dom.js";
import { CELL, disc, mark, place } from "./places.js";
import { letter, seatName } from "./words.js";

const EMPTY = ".";
const MARGIN = 22;  // for the names of rows and columns
const IN_A_ROW = { tic_tac_toe: 3, connect_four: 4, gomoku: 5 };

/** {indents, rows} of a text of equally long rows of single characters, else null. Growing indents make it a board of hexagons. */
export function parseGrid(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const rows = lines.map((line) => (/^(\S )*\S$/.test(line.trim()) ? line.trim().split(" ") : [...line.trim()]));
  const width = rows[0]?.length ?? 0;
  const fits = rows.length >= 2 && width >= 2 && rows.every((row) => row.length === width && row.every((cell) => /^[.xo]$/i.test(cell)));
  return fits ? { indents: lines.map((line) => line.length - line.trimStart().length), rows } : null;
}

/** The place of an action on a board so wide, by its text: {row, column}, of a whole column without row, or null. */
export function cellOf(text, width) {
  const pair = /^[xo]\((\d+),(\d+)\)$/.exec(text);
  if (pair) return { row: Number(pair[1]), column: Number(pair[2]) };
  const point = /^([a-z])(\d+)$/.exec(text);
  const column = point && point[1].charCodeAt(0) - 97;
  return point && (column < width ? { row: Number(point[2]) - 1, column } : { column: Number(point[2]) });  // x3 is a drop into a column
}

const owner = (cell) => (cell === EMPTY ? null : cell.toLowerCase() === "x" ? 0 : 1);

/** The board of `grid`; a column is one place where discs are dropped. */
export function drawGrid(grid, view) {
  const { game, before = "", actions = [], actor = 0 } = view;
  const { rows } = grid;
  const places = actions.map((action) => ({ ...action, at: cellOf(action.text, rows[0].length) })).filter(({ at }) => at);
  const drops = game === "connect_four" || (places.length > 0 && places.every(({ at }) => at.row === undefined));
  const look = drops ? "drops" : grid.indents.some((indent) => indent !== grid.indents[0]) ? "slanted" : game === "gomoku" ? "points" : "squares";
  const shown = { ...view, places, look, piece: game === "tic_tac_toe" ? mark : disc, rows, old: parseGrid(before)?.rows, actor: Math.max(actor, 0) };
  shown.centre = (row, column) => [(column + 0.5 + (look === "slanted" ? grid.indents[row] / 2 : 0)) * CELL, look === "slanted" ? (row * 0.866 + 0.6) * CELL : (row + 0.5) * CELL];
  const [right] = shown.centre(rows.length - 1, rows[0].length - 1), [, bottom] = shown.centre(rows.length - 1, 0);
  const free = rows.flat().filter((cell) => cell === EMPTY).length;
  shown.few = places.length < free;  // then the legal places are marked
  const box = [-MARGIN, -MARGIN, right + 0.5 * CELL + MARGIN + 4, bottom + (look === "slanted" ? 0.65 : 0.5) * CELL + MARGIN + 4];
  return s("svg", { class: `position ${look}`, role: view.still ? "img" : "group", "aria-label": "board", viewBox: box.map((number) => number.toFixed(0)).join(" ") },
    names(shown), drops ? columns(shown) : rows.map((row, r) => row.map((_, c) => cell(shown, r, c))),
    look === "slanted" ? edges(shown) : "", view.returns ? winning(shown) : "");
}

const names = ({ rows, centre, look }) => [
  ...rows[0].map((_, c) => s("text", { class: "coordinate", "font-size": sizeOf(rows), x: centre(0, c)[0], y: -8 }, look === "drops" ? c + 1 : letter(c))),
  ...(look === "drops" ? [] : rows.map((_, r) => s("text", { class: "coordinate", "font-size": sizeOf(rows), x: centre(r, 0)[0] - 0.5 * CELL - 11, y: centre(r, 0)[1] + 4 }, r + 1)))];

const sizeOf = (rows) => Math.min(11, 5 + rows.length);

function cell(shown, r, c) {
  const { rows, places } = shown;
  const action = places.find(({ at }) => at.row === r && at.column === c);
  const player = owner(rows[r][c]);
  const label = `${letter(c)}${r + 1}, ${player === null ? "empty" : seatName(shown.game, player)}`;
  return s("g", place(shown, `${r},${c}`, label, action, isNew(shown, r, c) ? "cell newest" : "cell"), contents(shown, r, c),
    action ? [shown.few ? s("circle", { class: "legal", cx: shown.centre(r, c)[0], cy: shown.centre(r, c)[1], r: 0.12 * CELL }) : "", shown.piece(shown.actor, ...shown.centre(r, c), { look: "ghost" })] : "");
}

/** Columns with the place where a disc lands. */
function columns(shown) {
  const { rows, centre, places } = shown;
  return rows[0].map((_, c) => {
    const action = places.find(({ at }) => at.column === c);
    const landing = rows.findLastIndex((row) => row[c] === EMPTY);
    const left = `column ${c + 1}, ${landing + 1} free`;
    return s("g", place(shown, `${c}`, left, action, "cell column"), rows.map((_, r) => s("g", { class: isNew(shown, r, c) ? "newest" : null }, contents(shown, r, c))),
      action ? shown.piece(shown.actor, ...centre(landing, c), { look: "ghost" }) : "");
  });
}

/** Whether the last move put a piece there. */
const isNew = ({ rows, old }, r, c) => Boolean(old && old[r]?.[c] === EMPTY && rows[r][c] !== EMPTY);

function contents(shown, r, c) {
  const { rows, centre, look, piece } = shown;
  const [x, y] = centre(r, c);
  const player = owner(rows[r][c]);
  const motion = isNew(shown, r, c) ? (look === "drops" ? `0,${-(r + 1) * CELL}` : "pop") : null;
  return [field(shown, r, c), player === null ? "" : piece(player, x, y, { motion }),
    motion && piece === disc ? s("circle", { class: "last", cx: x, cy: y, r: 0.1 * CELL, "data-motion": motion }) : ""];
}

function field({ look, rows, centre }, r, c) {
  const [x, y] = centre(r, c), half = CELL / 2;
  if (look === "slanted") return s("polygon", { points: corners([x, y], 0, 1, 2, 3, 4, 5), class: "field" });
  const square = s("rect", { x: x - half, y: y - half, width: CELL, height: CELL, class: "field" });
  if (look === "drops") return [square, s("circle", { cx: x, cy: y, r: 0.4 * CELL, class: "hole" })];
  if (look === "squares") return square;
  const [up, down, left, right] = [r > 0, r < rows.length - 1, c > 0, c < rows[0].length - 1].map((on) => (on ? half : 0));
  return [square, s("path", { class: "line", d: `M${x - left},${y}H${x + right}M${x},${y - up}V${y + down}` })];
}

/** Corners of a hexagon, clockwise from the lower right one. */
const corners = ([x, y], ...which) => which.map((i) => (Math.PI / 3) * i + Math.PI / 6)
  .map((angle) => `${(x + 0.577 * CELL * Math.cos(angle)).toFixed(1)},${(y + 0.577 * CELL * Math.sin(angle)).toFixed(1)}`).join(" ");

/** The sides of hex: the first player joins top and bottom, the second left and right. */
function edges({ rows, centre }) {
  const [last, wide] = [rows.length - 1, rows[0].length - 1];
  const along = (player, cells, ...which) => s("polyline", { class: `edge p${player}`, points: cells.map(([r, c]) => corners(centre(r, c), ...which)).join(" ") });
  const row = (r) => rows[0].map((_, c) => [r, c]), column = (c) => rows.map((_, r) => [r, c]);
  return [along(1, column(0), 3, 2, 1), along(1, column(wide), 4, 5, 0), along(0, row(0), 3, 4, 5), along(0, row(last), 2, 1, 0)];
}

// --- what won

function winning(shown) {
  const cells = shown.look === "slanted" ? chain(shown) : line(shown);
  return cells.length ? s("polyline", { class: "winning", points: cells.map(([r, c]) => shown.centre(r, c).join(",")).join(" ") }) : "";
}

/** So many in a row as win the game, as cells; empty without such a line. */
function line({ game, rows }) {
  const length = IN_A_ROW[game] ?? Infinity;
  for (const [r, row] of rows.entries()) {
    for (const [c, cell] of row.entries()) {
      if (cell === EMPTY) continue;
      for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
        const cells = [];
        for (let k = 0; rows[r + k * down]?.[c + k * right] === cell; k++) cells.push([r + k * down, c + k * right]);
        if (cells.length >= length) return cells;
      }
    }
  }
  return [];
}

/** The shortest chain of hex that joins the sides of the player who won. */
function chain({ rows, returns }) {
  const winner = returns[0] > returns[1] ? 0 : 1;
  const [start, end] = winner ? [([, c]) => c === 0, ([, c]) => c === rows[0].length - 1] : [([r]) => r === 0, ([r]) => r === rows.length - 1];
  const own = rows.flatMap((row, r) => row.flatMap((cell, c) => (owner(cell) === winner ? [[r, c]] : [])));
  const seen = new Set(), paths = own.filter(start).map((cell) => [cell]);
  for (const path of paths) {
    const [r, c] = path.at(-1);
    if (end([r, c])) return path;
    for (const next of own) {
      const [down, right] = [next[0] - r, next[1] - c];
      if (Math.abs(down + right) > 1 || Math.abs(down) > 1 || Math.abs(right) > 1 || seen.has(String(next))) continue;
      seen.add(String(next));
      paths.push([...path, next]);
    }
  }
  return [];
}

/** What stands beside the players' names. */
export function gridScores({ game }, { rows }) {
  if (game === "hex") return ["joins top and bottom", "joins left and right"];
  return game === "othello" ? [0, 1].map((player) => `${rows.flat().filter((cell) => owner(cell) === player).length} discs`) : [];
}
