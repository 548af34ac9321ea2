// One finished game ply by ply, as the REST interface tells it (GameView): board, values, what the search thought, moves.

import { Board } from "./board.js";
import { seatName, words } from "./boards/words.js";
import { Chart } from "./chart.js";
import { h, show } from "./dom.js";
import { ago, count, fixed, percent } from "./format.js";
import { RULES } from "./rules.js";

const value = (number) => (number === null ? "–" : `${number <= -0.005 ? "−" : "+"}${Math.abs(number).toFixed(2)}`);
export const results = (returns) => returns.map((each) => `${each > 0 ? "+" : ""}${Number(each.toFixed(2))}`).join(" : ");

export class Replay {
  /** `onPly` receives the ply that is shown. */
  constructor(onPly = () => {}) {
    this.onPly = onPly;
    this.ply = 0;
    this.board = new Board();
    this.board.element.id = "board";
    this.step = h("div", { class: "steps" });
    this.range = h("input", { type: "range", min: 0, value: 0, "aria-label": "ply" });
    this.facts = h("div", { class: "facts", id: "facts" });
    this.targets = h("div", { class: "targets", id: "targets" });
    this.moves = h("ol", { class: "moves", id: "moves", start: 1 });
    this.element = h("section", { class: "panel game", hidden: true });
    this.step.addEventListener("click", (event) => this.#jump(event.target.dataset.to));
    this.moves.addEventListener("click", (event) => event.target.dataset.ply && this.goToPly(Number(event.target.dataset.ply)));
    this.range.addEventListener("input", () => this.goToPly(Number(this.range.value)));
    this.onKey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onKey);
  }

  leave() {
    document.removeEventListener("keydown", this.onKey);
  }

  /** Says why there is no game to see. */
  refuse(message) {
    this.element.hidden = false;
    show(this.element, h("p", { class: "bad", role: "alert" }, message));
  }

  open(game, ply = 0) {
    this.shown = game;
    this.range.max = game.plies.length;
    this.#build(game);
    this.goToPly(ply);
  }

  #build(game) {
    const seats = game.players === 2 ? [0] : Array.from({ length: game.players }, (_, seat) => seat);
    this.chart = new Chart({
      title: game.players === 2 ? `Value for ${seatName(game.game, 0)}` : "Value by player", format: value, formatX: (ply) => `ply ${Math.round(ply)}`,
      series: seats.map((seat) => ({ name: seatName(game.game, seat), colour: 1 + (seat % 4) })), floor: -1, ceiling: 1, onPick: (ply) => this.goToPly(ply),
    });
    this.chart.update({
      x: game.plies.map((_, ply) => ply), ys: seats.map((seat) => game.plies.map((ply) => ply.values?.[seat] ?? null)),
      domain: [0, Math.max(1, game.plies.length - 1)],
    });
    const button = (to, text, label) => h("button", { type: "button", "data-to": to, "aria-label": label, title: label }, text);
    show(this.step, button("first", "«", "First position"), button("back", "‹", "One ply back"), button("on", "›", "One ply on"), button("last", "»", "Final position"));
    show(this.moves, game.plies.map((ply, i) => h("li", {}, h("button", { type: "button", class: "move", "data-ply": i }, words(game.game, ply.text)))));
    const origin = [RULES[game.game]?.title ?? game.game, `result ${results(game.returns)}`, game.finished_ms && ago(game.finished_ms), game.worker].filter(Boolean).join(" · ");
    this.element.hidden = false;
    this.element.replaceChildren(h("h2", {}, game.uid ? `Game ${game.uid} ` : "This game ", h("span", { class: "muted" }, origin)),
      game.note ? h("p", { class: "muted" }, game.note) : "", h("div", { class: "table" }, h("div", { class: "left" }, this.board.element, h("div", { class: "steer" }, this.step, this.range)),
        h("div", { class: "right" }, this.facts, this.targets, this.chart.element, this.moves)));
    this.chart.draw();
  }

  goToPly(ply) {
    if (!this.shown) return;
    const { plies } = this.shown;
    this.ply = Math.min(plies.length, Math.max(0, Math.round(ply) || 0));
    const now = plies[this.ply];
    const before = plies[this.ply - 1];
    this.board.draw(viewOf(this.shown, this.ply));
    this.range.value = this.ply;
    this.#drawFacts(now, before);
    for (const move of this.moves.querySelectorAll("button")) move.classList.toggle("played", Number(move.dataset.ply) === this.ply - 1);
    this.chart.pointAt(now ? this.ply : null);
    this.onPly(this.ply);
  }

  #drawFacts(now, before) {
    const { game, plies, returns } = this.shown;
    const fact = (name, text) => h("div", { class: "tile", "data-tile": name }, h("span", {}, name), h("b", {}, text));
    if (!now) {
      show(this.facts, fact("Ply", `${this.ply} of ${plies.length}`), fact("Result", results(returns)), before ? fact("Last move", words(game, before.text)) : "");
      show(this.targets);
      return;
    }
    show(this.facts, fact("Ply", `${this.ply} of ${plies.length}`), fact("To move", seatName(game, now.player)), fact("Plays", words(game, now.text)),
      fact("Value for the mover", now.values ? value(now.values[now.player]) : "–"), fact("Simulations", count(now.simulations)), fact("Weights", now.simulations ? `v${now.weight_version}` : "–"));
    show(this.targets, now.targets.length ? [h("h3", {}, "Policy target: what the search preferred, and ✓ what was played"), thoughts(game, now.targets, now.action)] : h("p", { class: "empty" }, "Not searched, so there is no policy target"));
  }

  #jump(to) {
    const place = { first: 0, back: this.ply - 1, on: this.ply + 1, last: Infinity }[to];
    if (place !== undefined) this.goToPly(place === Infinity ? this.shown.plies.length : place);
  }

  #key(event) {
    const to = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last" }[event.key];
    if (!to || !this.shown || event.defaultPrevented || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    this.#jump(to);
  }
}

/** What a board shows of a game after so many plies. */
export function viewOf({ game, plies, returns, final_position: final }, ply) {
  const now = plies[ply], before = plies[ply - 1];
  return {
    game, text: now ? now.position : final, before: before?.position ?? "", last: before, actor: now?.player, returns: now ? null : returns,
    names: returns.map((_, player) => seatName(game, player)),
  };
}

/** What a search thought of moves, [{action, text, share}]: the largest share first, bars scaled to it, a ✓ at the chosen one. */
export function thoughts(game, targets, chosen) {
  const sorted = [...targets].sort((one, other) => other.share - one.share);
  const most = fixed(4)(sorted[0]?.share || 1);
  return sorted.map(({ action, text, share, value: worth }) => h("div", { class: `target ${action === chosen ? "chosen" : ""}`, "data-key": action },
    h("span", {}, `${action === chosen ? "✓ " : ""}${words(game, text)}`), h("meter", { min: 0, max: most, value: fixed(4)(share), "aria-label": `${words(game, text)}${action === chosen ? ", chosen" : ""}` }),
    h("span", { class: "number" }, percent(share)), worth === undefined ? "" : h("span", { class: "number" }, value(worth))));
}
