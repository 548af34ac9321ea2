// Positions as pictures, drawn from their text: grids and hexagons of x and o, backgammon, hands of cards; anything else as text.
// What may be done is marked with `data-action`, so that one listener above the board hears every click, and keys reach it too.

import { h, s } from "./dom.js";

const CELL = 30;
const EMPTY = ".";
const SUITS = { S: "♠", H: "♥", D: "♦", C: "♣" };
const ANIMALS = { Li: "lion", Hi: "hippo", Cr: "crocodile", Sn: "snake", Gi: "giraffe", Ze: "zebra", Se: "seal", Ch: "chameleon", Mo: "monkey", Ka: "kangaroo", Pa: "parrot", Sk: "skunk" };

/**
 * The position; what differs from `before` is marked.
 * table: {seat: whose eyes see it (null: everything is shown), actions: [{action, text}] that may be clicked, from: a chosen point of
 * backgammon, hint: an action to point at}.
 */
export function board(text, before = "", table = {}) {
  const grid = parseGrid(text);
  if (grid) return drawGrid(grid, text, before, table);
  if (/^x: ?.*\no: ?/.test(text)) return drawBackgammon(text, table);
  if (/^c\d+ t\S+ d\d/.test(text)) return drawBlob(text, table);
  if (/^queue /.test(text)) return drawBeastyBar(text, table);
  if (/^( +(\d+|\.)){4}\n[^]*^score \d+$/m.test(text)) return drawTiles(text);
  return h("pre", { class: "position" }, text);
}

/** The actions that no place of the board stands for, such as a pass or a bid: they are buttons below it. */
export function beside(text, actions) {
  const grid = parseGrid(text);
  if (grid) return actions.filter((one) => !cellOf(one.text, grid.rows[0].length));
  if (/^x: ?.*\no: ?/.test(text)) return actions.filter((one) => !moveOf(one.text));
  if (/^c\d+ t/.test(text)) return actions.filter((one) => !/^[2-9TJQKA][SHDC]$/.test(one.text));
  return /^queue /.test(text) ? actions.filter((one) => !Object.values(ANIMALS).includes(one.text)) : actions;
}

// --- grids

/** {indents, rows} of a text of equally long rows of single characters, else null. Growing indents make it a board of hexagons. */
export function parseGrid(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const rows = lines.map((line) => (/^(\S )*\S$/.test(line.trim()) ? line.trim().split(" ") : [...line.trim()]));
  const width = rows[0]?.length ?? 0;
  const fits = rows.length >= 2 && width >= 2 && rows.every((row) => row.length === width && row.every((cell) => /^[.xo]$/i.test(cell)));
  return fits ? { indents: lines.map((line) => line.length - line.trimStart().length), rows } : null;
}

/** The place of an action on a board so wide, by its text: {row, column}, of a whole column without row, or null. */
function cellOf(text, width) {
  const pair = /^[xo]\((\d+),(\d+)\)$/.exec(text);
  if (pair) return { row: Number(pair[1]), column: Number(pair[2]) };
  const point = /^([a-z])(\d+)$/.exec(text);
  const column = point && point[1].charCodeAt(0) - 97;
  return point && (column < width ? { row: Number(point[2]) - 1, column } : { column: Number(point[2]) });  // x3 is a player's drop into column 3
}

function drawGrid(grid, text, before, { actions = [], hint = null }) {
  const old = parseGrid(before);
  const slanted = grid.indents.some((indent, i) => indent !== grid.indents[0] && i);
  const centre = (row, column) => (slanted
    ? [(column + 0.5 + grid.indents[row] / 2) * CELL, (row * 0.866 + 0.6) * CELL]
    : [(column + 0.5) * CELL, (row + 0.5) * CELL]);
  const [right] = centre(grid.rows.length - 1, grid.rows[0].length - 1);
  const [, bottom] = centre(grid.rows.length - 1, 0);
  const places = actions.map((one) => ({ ...one, place: cellOf(one.text, grid.rows[0].length) })).filter(({ place }) => place);
  const at = (r, c) => places.find(({ place }) => place.column === c && (place.row === undefined || place.row === r));
  const cells = grid.rows.flatMap((row, r) => row.map((cell, c) => {
    const action = at(r, c);
    const first = action?.place.row === undefined ? r === 0 : true;  // of a column one cell is enough for keys and readers
    const lands = action?.place.row !== undefined || (cell === EMPTY && (grid.rows[r + 1]?.[c] ?? "x") !== EMPTY);
    return drawCell(cell, centre(r, c), slanted, old && old.rows[r]?.[c] !== cell, action, first, action && action.action === hint && lands);
  }));
  const [last, wide] = [grid.rows.length - 1, grid.rows[0].length - 1];
  const edge = (player, from, to) => s("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: `edge p${player}` });
  const up = ([x, y]) => [x, y - 0.56 * CELL], down = ([x, y]) => [x, y + 0.56 * CELL], left = ([x, y]) => [x - 0.48 * CELL, y], right_of = ([x, y]) => [x + 0.48 * CELL, y];
  const edges = slanted ? [  // hex: the first player joins top and bottom, the second left and right
    edge(0, up(centre(0, 0)), up(centre(0, wide))), edge(0, down(centre(last, 0)), down(centre(last, wide))),
    edge(1, left(centre(0, 0)), left(centre(last, 0))), edge(1, right_of(centre(0, wide)), right_of(centre(last, wide)))] : [];
  return s("svg", { class: "position", role: actions.length ? "group" : "img", "aria-label": text, viewBox: `0 0 ${right + 0.5 * CELL} ${bottom + 0.6 * CELL}` }, edges, cells);
}

function drawCell(cell, [x, y], slanted, changed, action, first, hinted) {
  const corners = [0, 1, 2, 3, 4, 5].map((i) => (Math.PI / 3) * i + Math.PI / 6)
    .map((angle) => `${(x + 0.577 * CELL * Math.cos(angle)).toFixed(1)},${(y + 0.577 * CELL * Math.sin(angle)).toFixed(1)}`);
  const field = slanted ? s("polygon", { points: corners.join(" "), class: "field" })
    : s("rect", { x: x - CELL / 2, y: y - CELL / 2, width: CELL, height: CELL, class: "field" });
  const player = cell === EMPTY ? null : cell.toLowerCase() === "x" ? 0 : 1;
  return s("g", { "data-disc": player, ...clickable(action, first) }, field,
    player === null ? "" : s("circle", { cx: x, cy: y, r: CELL * 0.38, class: `disc p${player}` }),
    player !== null && changed ? s("circle", { cx: x, cy: y, r: CELL * 0.12, class: "newest" }) : "",
    hinted && cell === EMPTY ? s("circle", { cx: x, cy: y, r: CELL * 0.3, class: "hint" }) : "");
}

const clickable = (action, focusable = true) => (action
  ? { "data-action": action.action, class: "can", ...(focusable && { role: "button", tabindex: 0, "aria-label": action.text }) } : {});

// --- tiles of 2048, whose moves are buttons below

function drawTiles(text) {
  const rows = text.split("\n").filter((line) => !line.startsWith("score")).map((line) => line.trim().split(/ +/)).filter((row) => row.length > 1);
  const tiles = rows.flatMap((row, r) => row.map((tile, c) => {
    const square = (look) => s("rect", { x: c * CELL, y: r * CELL, width: CELL, height: CELL, ...look });
    return s("g", { "data-tile": tile }, square({ class: "field" }), tile === EMPTY ? "" : [
      square({ class: "shade", "fill-opacity": Math.min(Math.log2(tile), 12) / 20 }),
      s("text", { x: (c + 0.5) * CELL, y: (r + 0.62) * CELL, class: "count", "font-size": tile.length > 3 ? 9 : 12 }, tile)]);
  }));
  return h("div", { class: "position" }, s("svg", { class: "position", role: "img", "aria-label": text, viewBox: `0 0 ${rows[0].length * CELL} ${rows.length * CELL}` }, tiles),
    h("p", { class: "muted" }, /^score \d+$/m.exec(text)[0]));
}

// --- backgammon

const WIDE = 14;  // columns: twelve points, the bar, and who is borne off

/** {from, to} of a checker's move in its player's own numbering, 25 the bar and 0 off; null for what is no move of a checker. */
function moveOf(text) {
  const found = /^[xo] (bar|\d+)\/(off|\d+)\*?$/.exec(text);
  return found && { from: found[1] === "bar" ? 25 : Number(found[1]), to: found[2] === "off" ? 0 : Number(found[2]) };
}

function drawBackgammon(text, { seat = null, actions = [], from = null, hint = null }) {
  const lines = text.split("\n");
  const seen = seat ?? 0;
  const own = lines.slice(0, 2).map((line) => new Map([...line.matchAll(/(bar|off|\d+):(\d+)/g)].map(([, place, count]) => [place, Number(count)])));
  const dice = /to play (\d+)/.exec(lines[2])?.[1] ?? "";
  const moves = actions.map((one) => ({ ...one, ...moveOf(one.text) })).filter((one) => one.from !== undefined);
  const column = (point) => { const c = point <= 12 ? 12 - point : point - 13; return c + (c > 5 ? 1 : 0); };
  const place = (point) => {  // what is done by a click on a point of the one who looks
    const target = from === null ? null : moves.find((one) => one.from === from && one.to === point);
    if (target) return clickable(target);
    const source = moves.filter((one) => one.from === point);
    return source.length ? { "data-from": point, class: `can${from === point ? " chosen" : ""}`, role: "button", tabindex: 0, "aria-label": `from ${point === 25 ? "the bar" : point}` } : {};
  };
  const hinted = moves.find((one) => one.action === hint);
  const points = Array.from({ length: 24 }, (_, i) => i + 1).map((point) => {
    const mine = own[seen].get(String(point)) ?? 0, theirs = own[1 - seen].get(String(25 - point)) ?? 0;
    const x = column(point) * CELL, top = point > 12;
    const [base, tip] = top ? [0, 4.6 * CELL] : [11 * CELL, 6.4 * CELL];
    return s("g", { "data-point": point, ...place(point) },
      s("polygon", { points: `${x},${base} ${x + CELL},${base} ${x + CELL / 2},${tip}`, class: `point ${point % 2 ? "odd" : ""}` }),
      s("rect", { x, y: top ? 0 : 6 * CELL, width: CELL, height: 5 * CELL, class: hinted && (hinted.from === point || hinted.to === point) ? "touch hint" : "touch" }),
      checkers(mine || theirs, mine ? seen : 1 - seen, x, top));
  });
  const bar = s("g", place(25), s("rect", { x: 6 * CELL, y: 0, width: CELL, height: 11 * CELL, class: "field" }),
    checkers(own[1 - seen].get("bar") ?? 0, 1 - seen, 6 * CELL, true), checkers(own[seen].get("bar") ?? 0, seen, 6 * CELL, false));
  const off = s("g", place(0), s("rect", { x: 13 * CELL, y: 0, width: CELL, height: 11 * CELL, class: "field" }),
    s("text", { x: 13.5 * CELL, y: CELL, class: "count" }, own[1 - seen].get("off") ?? 0), s("text", { x: 13.5 * CELL, y: 10.3 * CELL, class: "count" }, own[seen].get("off") ?? 0));
  const faces = [...dice].map((die, i) => s("g", { "data-die": die }, s("rect", { x: (7.6 + 1.1 * i) * CELL, y: 5.05 * CELL, width: 0.9 * CELL, height: 0.9 * CELL, rx: 4, class: "die" }),
    s("text", { x: (8.05 + 1.1 * i) * CELL, y: 5.72 * CELL, class: "count" }, die)));
  return s("svg", { class: "position wide", role: actions.length ? "group" : "img", "aria-label": text, viewBox: `0 0 ${WIDE * CELL} ${11 * CELL}` }, points, bar, off, faces);
}

function checkers(count, player, x, top) {
  return Array.from({ length: Math.min(count, 5) }, (_, i) => s("circle", {
    cx: x + CELL / 2, cy: top ? (i + 0.5) * 0.92 * CELL : (11 - (i + 0.5) * 0.92) * CELL, r: CELL * 0.43, class: `disc p${player}`, "data-disc": player,
  })).concat(count > 5 ? s("text", { x: x + CELL / 2, y: top ? 0.66 * CELL : 10.74 * CELL, class: "count on" }, count) : []);
}

// --- cards

const card = (name, text, table, red = false) => {
  const action = (table.actions ?? []).find((one) => one.text === text);
  const marks = `card${red ? " red" : ""}${action ? " can" : ""}${action && action.action === table.hint ? " hint" : ""}`;
  return action ? h("button", { type: "button", "data-action": action.action, class: marks }, name) : h("span", { class: marks }, name);
};
const playing = (name, table) => card(`${name[0] === "T" ? "10" : name[0]}${SUITS[name[1]]}`, name, table, "HD".includes(name[1]));
const back = () => h("span", { class: "card back", "aria-label": "hidden" }, "▒");
const shows = (table, player) => table.seat === null || table.seat === undefined || table.seat === player;
const row = (name, ...cells) => h("div", { class: "hand" }, h("span", { class: "who" }, name), cells);

function drawBlob(text, table) {
  const [head, ...lines] = text.split("\n");
  const [, count, trump, dealer] = /^c(\S+) t(\S+) d(\d+)/.exec(head) ?? [];
  const hands = lines.map((line) => /^(>)? +(\d+): (.*) \| ?(.*)$/.exec(line)).filter(Boolean).map(([, moves, number, told, cards]) => {
    const player = Number(number), held = cards.split(" ").filter(Boolean);
    return row(`${moves ? "▸ " : ""}${player === table.seat ? "you" : `player ${player}`}`, h("span", { class: "told" }, told),
      held.map((name) => (shows(table, player) ? playing(name, table) : back())));
  });
  const trick = /^trick: ?(.*)$/m.exec(text)?.[1].split(" ").filter(Boolean) ?? [];
  return h("div", { class: "position cards" }, h("p", { class: "muted" }, `${count} cards, trump ${SUITS[trump] ?? trump}, player ${dealer} deals`),
    hands, row("trick", trick.map((name) => playing(name, {}))));
}

function drawBeastyBar(text, table) {
  const line = (name) => new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1] ?? "";
  const animals = (cards) => cards.match(/[A-Z][a-z]\d?/g) ?? [];
  const beast = (name, mine) => card(ANIMALS[name.slice(0, 2)] + (name[2] ? ` ${name[2]}` : ""), mine ? ANIMALS[name] : "", table);
  const hands = [...text.matchAll(/^player (\d+) hand (\S+) pile (\S+)$/gm)].map(([, number, hand, pile]) => {
    const player = Number(number);
    return row(`${line("plays") === number ? "▸ " : ""}${player === table.seat ? "you" : `player ${player}`}`, h("span", { class: "told" }, `${animals(pile).length} to draw`),
      animals(hand).map((name) => (shows(table, player) ? beast(name, player === (table.seat ?? -1)) : back())));
  });
  const out = (name) => line(name).split(" ").map((cards, player) => row(`${name} of ${player === table.seat ? "you" : `player ${player}`}`, animals(cards).map((one) => beast(one, false))));
  return h("div", { class: "position cards" }, row("queue", animals(line("queue")).map((one) => beast(one, false))), out("bar"), out("out"), hands);
}
