// The board of every page: a position drawn from the core's text, with names, whose turn it is, the last move and the result. On the play
// page it is played on: by taps, by drags, by swipes, and by the keyboard, whose cursor stays where it was after a move.

import { backgammonScores, checkerMove, drawBackgammon, isBackgammon } from "./boards/backgammon.js";
import { beastyBarButtons, blobButtons, drawBeastyBar, drawBlob, isBeastyBar, isBlob } from "./boards/cards.js";
import { cellOf, drawGrid, gridScores, parseGrid } from "./boards/grid.js";
import { disc, mark } from "./boards/places.js";
import { drawTiles, isTiles } from "./boards/tiles.js";
import { capital, seatName, verdict, words } from "./boards/words.js";
import { h, s, show } from "./dom.js";

const MOTION_MS = 150;
const DRAG_PX = 6, SWIPE_PX = 24;
const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const STEP = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/**
 * {stage, buttons: actions that no place stands for, scores: by player, or null where the board itself names the players}.
 * view: {text, game, before: the text before the last ply, last: {text, player}, actions: [{action, text}] that may be played, actor (null: unknown),
 * seat: who looks (null: all is shown), from: what was chosen to move, hint: an action, cursor: a place, returns: of a finished game, names, still}.
 */
export function picture(view) {
  const grid = parseGrid(view.text), { actions = [] } = view;
  if (grid) return { stage: drawGrid(grid, view), buttons: actions.filter(({ text }) => !cellOf(text, grid.rows[0].length)), scores: gridScores(view, grid) };
  if (isBackgammon(view.text)) return { stage: drawBackgammon(view), buttons: actions.filter(({ text }) => !checkerMove(text)), scores: backgammonScores(view, view.text) };
  if (isBlob(view.text)) return { stage: drawBlob(view), buttons: blobButtons({ ...view, actions }), scores: null };
  if (isBeastyBar(view.text)) return { stage: drawBeastyBar(view), buttons: beastyBarButtons({ ...view, actions }), scores: null };
  if (isTiles(view.text)) return { stage: drawTiles(view), buttons: actions, scores: null };
  return { stage: h("pre", { class: "position" }, view.text), buttons: actions, scores: [] };
}

export class Board {
  /** `onAct(action)` hears what a person plays; a board without it is only looked at. */
  constructor(onAct = null) {
    this.onAct = onAct;
    this.from = this.cursor = this.view = null;
    this.face = h("div");
    this.announced = h("p", { class: "announced", "aria-live": "polite" });
    this.element = h("div", { class: "board", tabindex: onAct && -1 }, this.face, this.announced);
    if (!onAct) return;
    this.element.addEventListener("click", ({ target }) => this.#choose(target.closest("[data-action], [data-from]")));
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("pointerdown", (event) => this.#press(event));
    this.element.addEventListener("pointermove", (event) => this.#drag(event));
    this.element.addEventListener("pointerup", (event) => this.#release(event));
    this.element.addEventListener("pointercancel", () => this.#drop());
    document.addEventListener("keydown", (event) => this.#steer(event));
  }

  /** Shows a position; see `picture`. `notice` takes the place of whose turn it is. */
  draw(view) {
    const fresh = this.view?.text !== view.text;
    const held = this.element.contains(document.activeElement);
    if (fresh) this.from = null;
    const players = view.names?.length ?? view.returns?.length ?? 2;
    this.view = { seat: null, actions: [], hint: null, actor: null, names: Array.from({ length: players }, (_, player) => seatName(view.game, player)), ...view };
    this.#show();
    if (held && [document.body, this.element].includes(document.activeElement)) (this.element.querySelector('[tabindex="0"], .beside button') ?? this.element).focus();
    if (fresh) this.#settle();
  }

  #show() {
    const view = { ...this.view, from: this.from, cursor: this.cursor, still: !this.onAct };
    const { stage, buttons, scores } = picture(view);
    const { seat, names } = view;
    const plate = (player) => (scores && names.length === 2 ? this.#plate(player, scores[player]) : "");
    const lower = seat ?? 0;
    this.element.dataset.game = view.game ?? "";
    show(this.face, h("p", { class: `turn ${view.returns ? "over" : ""}` }, headline(view)), plate(1 - lower), h("div", { class: "scene" }, stage), plate(lower),
      this.onAct ? h("div", { class: `beside${buttons.length && ARROWS[`Arrow${capital(buttons[0].text)}`] ? " pad" : ""}` }, buttons.map(({ action, text }) => this.#button(action, text))) : "");
    if (this.onAct && !this.element.querySelector('.scene [tabindex="0"]')) this.#rest(this.element.querySelector(".scene [data-action], .scene [data-from]") ?? this.element.querySelector(".scene [data-place]"));
  }

  #button(action, text) {
    return h("button", { type: "button", "data-action": action, "data-move": text, class: action === this.view.hint ? "hint" : null }, capital(words(this.view.game, text)));
  }

  #plate(player, score) {
    const { game, names, actor, returns } = this.view;
    const piece = game === "tic_tac_toe" ? mark : disc;
    const colour = seatName(game, player);
    return h("p", { class: `plate${actor === player && !returns ? " to-move" : ""}`, "data-player": player }, s("svg", { class: "piece", viewBox: "0 0 40 40", "aria-hidden": "true" }, piece(player, 20, 20, { look: "small" })),
      h("b", {}, names[player]), h("span", { class: "muted" }, [names[player] === colour ? "" : colour, score].filter(Boolean).join(" · ")));
  }

  /** After a ply: what moved moves, and screen readers hear of it. */
  #settle() {
    const { last, before, game, names } = this.view;
    if (before && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      for (const piece of this.element.querySelectorAll("[data-motion]")) {
        const [x, y] = piece.dataset.motion.split(",");
        piece.animate([{ transform: y === undefined ? "scale(0.4)" : `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration: MOTION_MS, easing: "ease-out" });
      }
    }
    const who = last && (last.player < 0 ? "Chance" : names[last.player]);
    this.announced.textContent = `${last ? `${who}: ${words(game, last.text)}. ` : ""}${headline(this.view)}`;
  }

  // --- what a person does

  #choose(target) {
    if (!target) return;
    if (target.dataset.place) this.cursor = target.dataset.place;
    const { action, from } = target.dataset;
    if (action !== undefined) return void this.onAct(Number(action));
    const moves = this.view.actions.filter(({ text }) => checkerMove(text) && String(checkerMove(text).from) === from);
    if (moves.length === 1) return void this.onAct(moves[0].action);
    this.#take(this.from === from ? null : from);
  }

  #take(from) {
    this.from = from;
    this.#show();
    if (from !== null) this.announced.textContent = "Chosen; now choose where to.";
  }

  /** The cursor goes to a place. */
  #rest(place) {
    for (const other of this.element.querySelectorAll('.scene [tabindex="0"]')) other.setAttribute("tabindex", -1);
    place?.setAttribute("tabindex", 0);
    this.cursor = place?.dataset.place ?? null;
  }

  #key(event) {
    const place = event.target.closest?.("[data-place]");
    if (event.key === "Escape" && this.from !== null) this.#take(null);
    if (!place) return;
    if ((event.key === "Enter" || event.key === " ") && place.localName !== "button") {
      event.preventDefault();
      this.#choose(place.closest("[data-action], [data-from]"));
    }
    const step = STEP[event.key];
    if (!step) return;
    event.preventDefault();
    const next = nearest(place, [...this.element.querySelectorAll(".scene [data-place]")], step);
    this.#rest(next ?? place);
    next?.focus();
  }

  /** Arrow keys anywhere on the page, where moves are directions. */
  #steer(event) {
    const move = ARROWS[event.key] && this.view?.actions.find(({ text }) => text === ARROWS[event.key]);
    if (!move || event.target.closest?.("input, select, textarea, dialog")) return;
    event.preventDefault();
    this.onAct(move.action);
  }

  #press(event) {
    const source = event.target.closest("[data-from], .card[data-action]");
    const swipes = event.target.closest(".swipes");
    if (event.isPrimary && (source || swipes)) this.held = { source, x: event.clientX, y: event.clientY, piece: null };
  }

  #drag(event) {
    if (!this.held?.source) return;
    const [dx, dy] = [event.clientX - this.held.x, event.clientY - this.held.y];
    if (!this.held.piece && Math.hypot(dx, dy) < DRAG_PX) return;
    if (!this.held.piece) {
      const { from, place } = this.held.source.dataset;
      if (from !== undefined && this.from !== from) this.#take(from);
      const source = this.element.querySelector(`[data-place="${place}"]`);
      this.held.piece = source.localName === "button" ? source : lifted([...source.querySelectorAll(".disc")].at(-1));
    }
    const scale = this.held.piece.getScreenCTM?.().a ?? 1;
    Object.assign(this.held.piece.style, { translate: `${dx / scale}px ${dy / scale}px`, pointerEvents: "none", zIndex: 1 });
  }

  #release(event) {
    if (!this.held) return;
    const { source, piece, x, y } = this.held;
    const [dx, dy] = [event.clientX - x, event.clientY - y];
    const target = piece && document.elementFromPoint(event.clientX, event.clientY);
    this.#drop();
    if (!source && Math.hypot(dx, dy) > SWIPE_PX) {
      const way = Math.abs(dx) > Math.abs(dy) ? (dx > 0 ? "right" : "left") : dy > 0 ? "down" : "up";
      const move = this.view.actions.find(({ text }) => text === way);
      if (move) this.onAct(move.action);
    } else if (piece && source.matches(".card")) {
      if (target?.closest("[data-drop]")) this.#choose(source);
    } else if (piece) {
      const aim = target?.closest("[data-action]");
      if (aim && this.element.contains(aim)) this.#choose(aim);
    }
  }

  #drop() {
    const piece = this.held?.piece;
    if (piece?.localName === "button") piece.removeAttribute("style");
    else piece?.remove();
    this.held = null;
  }
}

/** A copy of a piece above everything else that is drawn. */
function lifted(piece) {
  const copy = piece.cloneNode(true);
  copy.removeAttribute("data-disc");
  piece.ownerSVGElement.append(copy);
  return copy;
}

/** Whose turn it is, or how the game went. */
function headline(view) {
  const { notice, returns, seat, actor, names } = view;
  if (notice) return notice;
  if (returns) return verdict(view);
  if (actor === null) return "";
  if (actor < 0) return "Rolling…";
  return actor === seat ? "Your turn" : seat === null ? (names.length > 1 ? `${names[actor]} to move` : "") : `${names[actor]} is thinking…`;
}

/** The place that lies next in a direction. */
function nearest(place, places, [dx, dy]) {
  const middle = (one) => { const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; };
  const [x, y] = middle(place);
  const far = (one) => { const [u, v] = middle(one); const ahead = (u - x) * dx + (v - y) * dy; return ahead < 4 ? Infinity : ahead + 2 * Math.abs((u - x) * dy + (v - y) * dx); };
  const best = places.reduce((found, one) => (far(one) < far(found) ? one : found), place);
  return far(best) === Infinity ? null : best;
}
