// What all boards have in common: places that a person can reach, and the pieces of two players.

import { s } from "../dom.js";

export const CELL = 40;

/**
 * Attributes of a place: what a tap on it does and what a screen reader says. `does` is {action} to play or {from} to choose from;
 * every place can be reached with the arrow keys, so that an illegal one can be read as well.
 */
export function place({ still, cursor, hint, from }, key, label, does = {}, look = "") {
  if (still) return { class: look };
  const can = does.action !== undefined || does.from !== undefined;
  const marks = [look, can && "can", does.from !== undefined && does.from === from && "chosen", can && hint !== null && (does.action ?? does.hints) === hint && "hint"];
  return {
    class: marks.filter(Boolean).join(" "), role: "button", tabindex: cursor === key ? 0 : -1, "aria-label": label, "aria-disabled": can ? null : "true",
    "data-place": key, "data-action": does.action, "data-from": does.from,
  };
}

/** A player's disc: the second one's has a ring, so that colours are not needed. `motion` is where it comes from, "x,y", or "pop". */
export function disc(player, x, y, { radius = 0.38 * CELL, look = "", motion = null } = {}) {
  return s("g", { class: `disc p${player} ${look}`, "data-disc": look ? null : player, "data-motion": motion }, s("circle", { cx: x, cy: y, r: radius }),
    player ? s("circle", { cx: x, cy: y, r: radius * 0.6, class: "ring" }) : "");
}

/** A cross or a circle. */
export function mark(player, x, y, { look = "", motion = null } = {}) {
  const r = 0.27 * CELL;
  return s("g", { class: `xo p${player} ${look}`, "data-disc": look ? null : player, "data-motion": motion },
    player ? s("circle", { cx: x, cy: y, r }) : s("path", { d: `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}` }));
}
