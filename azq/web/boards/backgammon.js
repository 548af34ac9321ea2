// Backgammon, seen by the player whose home is at the lower right.

import { s } from "../dom.js";
import { CELL, disc, place } from "./places.js";

const WIDE = 14, HIGH = 11.6;  // columns: twelve points, the bar, and what is borne off
const TOP = 0.5, LOW = HIGH - TOP;  // beyond these lie the points' numbers
const STACK = 5;  // checkers that are drawn; a number says how many there are

export const isBackgammon = (text) => /^x: ?.*\no: ?/.test(text);

/** {from, to} of a checker's move in its player's own numbering, 25 the bar and 0 off; null for other moves. */
export function checkerMove(text) {
  const match = /^[xo] (bar|\d+)\/(off|\d+)\*?$/.exec(text);
  return match && { from: match[1] === "bar" ? 25 : Number(match[1]), to: match[2] === "off" ? 0 : Number(match[2]) };
}

/** By player, how many checkers stand where: Maps of "bar", "off" and points in the player's own numbering. */
const counts = (text) => text.split("\n").slice(0, 2).map((line) => new Map([...line.matchAll(/(bar|off|\d+):(\d+)/g)].map(([, at, count]) => [at, Number(count)])));

export const pips = (text) => counts(text).map((own) => [...own].reduce((sum, [at, count]) => sum + count * (at === "off" ? 0 : at === "bar" ? 25 : Number(at)), 0));

export const backgammonScores = (_, text) => {
  const borne = counts(text).map((own) => own.get("off") ?? 0);
  return pips(text).map((pip, player) => `${pip} pips · ${borne[player]} off`);
};

const columnOf = (point) => { const c = point <= 12 ? 12 - point : point - 13; return c + (c > 5 ? 1 : 0); };

export function drawBackgammon(view) {
  const { text, seat, last, from = null, actions = [] } = view;
  const seen = seat ?? 0;
  const own = counts(text);
  const moves = actions.flatMap((action) => { const move = checkerMove(action.text); return move ? [{ ...action, ...move }] : []; });
  const hinted = moves.find(({ action }) => action === view.hint);
  const does = (point) => {
    const target = from === null ? null : moves.find((move) => String(move.from) === from && move.to === point);
    if (target) return { action: target.action };
    return moves.some((move) => move.from === point) ? { from: String(point), hints: hinted?.from === point ? hinted.action : null } : {};
  };
  const shown = { ...view, seen, own, does, hinted, moved: moved(last, seen) };
  const [, dice = ""] = /to play (\d+)/.exec(text) ?? [];
  const roller = /^o to/m.test(text) ? 1 : 0;
  return s("svg", { class: "position wide", role: view.still ? "img" : "group", "aria-label": "board", viewBox: `0 0 ${WIDE * CELL} ${HIGH * CELL}` },
    s("rect", { class: "wood", x: 0, y: 0, width: WIDE * CELL, height: HIGH * CELL, rx: 6 }), s("rect", { class: "felt", x: 0, y: TOP * CELL, width: 13 * CELL, height: (LOW - TOP) * CELL }),
    Array.from({ length: 24 }, (_, i) => point(shown, i + 1)), bar(shown), off(shown), [...dice].map((die, i) => drawDie(die, i, dice.length, roller, roller === seen)));
}

/** Where the checker of the last move came from and stands now, as the one who looks numbers the points. */
function moved(last, seen) {
  const move = last && checkerMove(last.text);
  if (!move) return null;
  const turned = (point) => (last.player === seen || point === 0 ? point : 25 - point);
  return { from: turned(move.from), to: turned(move.to), mine: last.player === seen };
}

/** The middle of the outermost checker of a place, of the bar on the side of its player. */
function spot(point, mine) {
  const high = point === 25 ? mine : point > 12;
  return [((point === 25 ? 6 : columnOf(point)) + 0.5) * CELL, (high ? TOP + 0.46 : LOW - 0.46) * CELL];
}

function point(shown, number) {
  const { own, seen } = shown;
  const mine = own[seen].get(String(number)) ?? 0, theirs = own[1 - seen].get(String(25 - number)) ?? 0;
  const count = mine || theirs, player = mine ? seen : 1 - seen;
  const x = columnOf(number) * CELL, high = number > 12;
  const [base, tip] = high ? [TOP * CELL, 5.3 * CELL] : [LOW * CELL, (HIGH - 5.3) * CELL];
  const does = shown.does(number);
  const who = count ? `${count} ${mine ? "of yours" : "of the opponent's"}` : "empty";
  return s("g", { "data-point": number, ...place(shown, `p${number}`, `point ${number}, ${who}${does.action === undefined ? "" : ", move here"}`, does, "cell") },
    s("polygon", { points: `${x + 1},${base} ${x + CELL - 1},${base} ${x + CELL / 2},${tip}`, class: number % 2 ? "point odd" : "point" }),
    s("rect", { x, y: high ? TOP * CELL : 6 * CELL, width: CELL, height: 5.1 * CELL, class: `touch${shown.hinted && [shown.hinted.from, shown.hinted.to].includes(number) ? " hint" : ""}` }),
    s("text", { class: "coordinate", "font-size": 11, x: x + CELL / 2, y: high ? 14 : HIGH * CELL - 6 }, number),
    checkers(shown, count, player, number, x, high), does.action === undefined ? "" : landing(x + CELL / 2, high, count));
}

const landing = (x, high, count) => {
  const depth = (Math.min(count, STACK - 1) + 0.5) * 0.92;
  return s("circle", { class: "legal", cx: x, cy: (high ? TOP + depth : LOW - depth) * CELL, r: 0.16 * CELL });
};

function bar(shown) {
  const { own, seen } = shown;
  const mine = own[seen].get("bar") ?? 0, theirs = own[1 - seen].get("bar") ?? 0;
  return s("g", place(shown, "bar", `bar, ${mine} of yours, ${theirs} of the opponent's`, shown.does(25), "cell"), s("rect", { x: 6 * CELL, y: TOP * CELL, width: CELL, height: (LOW - TOP) * CELL, class: "rail" }),
    s("rect", { x: 6 * CELL, y: TOP * CELL, width: CELL, height: (LOW - TOP) * CELL, class: "touch" }),
    checkers(shown, theirs, 1 - seen, 25, 6 * CELL, false), checkers(shown, mine, seen, 25, 6 * CELL, true));
}

/** Checkers that are off lie on their edges. */
function off(shown) {
  const { own, seen } = shown;
  const [mine, theirs] = [own[seen].get("off") ?? 0, own[1 - seen].get("off") ?? 0];
  const does = shown.does(0);
  const slabs = (count, player, high) => Array.from({ length: count }, (_, i) => s("rect", { class: `slab p${player}`, x: 13.12 * CELL, y: (high ? TOP + 0.33 * i : LOW - 0.33 * (i + 1)) * CELL + 1, width: 0.76 * CELL, height: 0.33 * CELL - 2, rx: 3 }));
  return s("g", place(shown, "off", `borne off: ${mine} of yours, ${theirs} of the opponent's${does.action === undefined ? "" : ", move here"}`, does, "cell"),
    s("rect", { x: 13 * CELL, y: TOP * CELL, width: CELL, height: (LOW - TOP) * CELL, class: "tray" }), s("rect", { x: 13 * CELL, y: TOP * CELL, width: CELL, height: (LOW - TOP) * CELL, class: "touch" }),
    slabs(theirs, 1 - seen, true), slabs(mine, seen, false), does.action === undefined ? "" : s("circle", { class: "legal", cx: 13.5 * CELL, cy: 5.8 * CELL, r: 0.16 * CELL }));
}

function checkers({ moved, seen }, count, player, number, x, high) {
  return Array.from({ length: Math.min(count, STACK) }, (_, i) => {
    const y = (high ? TOP + (i + 0.5) * 0.92 : LOW - (i + 0.5) * 0.92) * CELL;
    const arrives = moved && moved.to === number && i === Math.min(count, STACK) - 1 && (player === seen) === moved.mine;
    const [fromX, fromY] = arrives ? spot(moved.from, moved.mine) : [];
    const motion = arrives ? `${fromX - x - CELL / 2},${fromY - y}` : null;
    return [disc(player, x + CELL / 2, y, { radius: 0.44 * CELL, motion }),
      arrives ? s("circle", { class: "last", cx: x + CELL / 2, cy: y, r: 0.1 * CELL, "data-motion": motion }) : ""];
  }).concat(count > STACK ? s("text", { x: x + CELL / 2, y: (high ? TOP + 0.62 : LOW - 0.32) * CELL, class: `count p${player}` }, count) : "");
}

const PIPS = { 1: [4], 2: [0, 8], 3: [0, 4, 8], 4: [0, 2, 6, 8], 5: [0, 2, 4, 6, 8], 6: [0, 2, 3, 5, 6, 8] };

/** The dice that are left to play, on the side of the player who threw them. */
function drawDie(die, i, all, player, mine) {
  const size = 0.86 * CELL, x = (mine ? 10 : 3) * CELL + (i - all / 2) * 1.02 * CELL, y = HIGH / 2 * CELL - size / 2;
  return s("g", { class: `die p${player}`, "data-die": die, "data-motion": "pop" }, s("rect", { x, y, width: size, height: size, rx: 6 }),
    PIPS[die].map((k) => s("circle", { cx: x + size * (0.25 + 0.25 * (k % 3)), cy: y + size * (0.25 + 0.25 * Math.floor(k / 3)), r: size * 0.09 })));
}
