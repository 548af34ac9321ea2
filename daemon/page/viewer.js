// Recorded games: a list, newest first, and one game ply by ply.

import { call, callPage, path } from "./api.js";
import { board } from "./board.js";
import { Chart } from "./chart.js";
import { h, show } from "./dom.js";
import { ago, count, fixed, percent } from "./format.js";

const PAGE = 40;
const value = (number) => (number === null ? "–" : `${number <= -0.005 ? "−" : "+"}${Math.abs(number).toFixed(2)}`);
const results = (returns) => returns.map((each) => `${each > 0 ? "+" : ""}${Number(each.toFixed(2))}`).join(" : ");
const seatName = (player, players) => (players > 2 ? `player ${player}` : player === 0 ? "first" : "second");

export class Viewer {
  asks = [[5000, this.refresh]];

  constructor(run, rest) {
    this.run = run;
    this.games = [];
    this.next = null;
    this.ply = 0;
    this.list = h("section", { class: "panel list", id: "games" });
    this.board = h("div", { class: "board", id: "board" });
    this.step = h("div", { class: "steps" });
    this.range = h("input", { type: "range", min: 0, value: 0, "aria-label": "ply" });
    this.facts = h("div", { class: "facts", id: "facts" });
    this.targets = h("div", { class: "targets", id: "targets" });
    this.moves = h("ol", { class: "moves", id: "moves", start: 1 });
    this.game = h("section", { class: "panel game", hidden: true });
    this.element = h("div", { class: "viewer" }, this.list, this.game);
    this.list.addEventListener("click", (event) => {
      const asked = event.target.closest("[data-list]")?.dataset.list;
      if (asked) this[asked]().catch(() => {});  // the page's own rhythm tells what is wrong
    });
    this.step.addEventListener("click", (event) => this.#jump(event.target.dataset.to));
    this.moves.addEventListener("click", (event) => event.target.dataset.ply && this.goToPly(Number(event.target.dataset.ply)));
    this.range.addEventListener("input", () => this.goToPly(Number(this.range.value)));
    this.onKey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onKey);
    this.goTo(rest);
  }

  leave() {
    document.removeEventListener("keydown", this.onKey);
  }

  /** Opens the game and ply that the address names. */
  goTo([uid, ply]) {
    this.wanted = uid ? { uid, ply: Number(ply ?? 0) } : null;
    if (uid && String(this.shown?.uid) !== uid) this.refresh().catch(() => {});  // asked again by the page's own rhythm
    else if (this.shown && ply !== undefined) this.goToPly(Number(ply));
  }

  async refresh() {
    if (this.wanted && String(this.shown?.uid) !== this.wanted.uid) await this.#open(this.wanted);
    if (this.games.length && (this.shown || this.games.length > PAGE || this.list.matches(":hover, :focus-within"))) return;  // somebody reads
    await this.newest();
  }

  async newest() {
    const page = await callPage(path(this.run, `/games?limit=${PAGE}`)).catch((error) => this.#noGames(error));
    if (!page) return;
    Object.assign(this, { games: page.items, next: page.next });
    this.#drawList();
  }

  #noGames(error) {
    if (error.status !== 404) throw error;
    show(this.list, h("h2", {}, "games"), h("p", { class: "empty" }, error.message));
    return null;
  }

  async older() {
    const page = await callPage(this.next);
    this.games.push(...page.items);
    this.next = page.next;
    this.#drawList();
  }

  async #open({ uid, ply }) {
    let game;
    try {
      game = await call(path(this.run, `/games/${uid}`));
    } catch (error) {
      if (!error.status || error.status === 401) throw error;
      this.game.hidden = false;
      show(this.game, h("p", { class: "bad", role: "alert" }, error.message));
      this.wanted = null;
      return;
    }
    this.shown = game;
    this.range.max = game.plies.length;
    this.#buildGame(game);
    this.goToPly(ply);
    this.#drawList();
  }

  #buildGame(game) {
    const seats = game.players === 2 ? [0] : Array.from({ length: game.players }, (_, seat) => seat);
    this.chart = new Chart({
      title: game.players === 2 ? "value for the first player" : "value by seat", format: value, formatX: (ply) => `ply ${Math.round(ply)}`,
      series: seats.map((seat) => ({ name: seatName(seat, game.players), colour: 1 + (seat % 4) })), floor: -1, ceiling: 1, onPick: (ply) => this.goToPly(ply),
    });
    this.chart.update({
      x: game.plies.map((_, ply) => ply), ys: seats.map((seat) => game.plies.map((ply) => ply.values?.[seat] ?? null)),
      domain: [0, Math.max(1, game.plies.length - 1)],
    });
    const button = (to, text, label) => h("button", { type: "button", "data-to": to, "aria-label": label, title: label }, text);
    show(this.step, button("first", "«", "first position"), button("back", "‹", "one ply back"), button("on", "›", "one ply on"), button("last", "»", "final position"));
    show(this.moves, game.plies.map((ply, i) => h("li", {}, h("button", { type: "button", class: "move", "data-ply": i }, ply.text))));
    this.game.hidden = false;
    this.game.replaceChildren(h("h2", {}, `game ${game.uid} `, h("span", { class: "muted" }, `${game.game} · result ${results(game.returns)} · ${ago(game.finished_ms)} · ${game.worker}`)),
      game.note ? h("p", { class: "muted" }, game.note) : "", h("div", { class: "table" }, h("div", { class: "left" }, this.board, h("div", { class: "steer" }, this.step, this.range)),
        h("div", { class: "right" }, this.facts, this.targets, this.chart.element, this.moves)));
    this.chart.draw();
  }

  goToPly(ply) {
    if (!this.shown) return;
    const { plies, final_position: final } = this.shown;
    this.ply = Math.min(plies.length, Math.max(0, Math.round(ply) || 0));
    const now = plies[this.ply];
    const before = plies[this.ply - 1];
    show(this.board, board(now ? now.position : final, before?.position ?? ""));
    this.range.value = this.ply;
    this.#drawFacts(now, before);
    for (const move of this.moves.querySelectorAll("button")) move.classList.toggle("played", Number(move.dataset.ply) === this.ply - 1);
    this.chart.pointAt(now ? this.ply : null);
    history.replaceState(null, "", `#/games/${encodeURIComponent(this.run)}/${this.shown.uid}/${this.ply}`);
  }

  #drawFacts(now, before) {
    const { plies, returns } = this.shown;
    const fact = (name, text) => h("div", { class: "tile", "data-tile": name }, h("span", {}, name), h("b", {}, text));
    if (!now) {
      show(this.facts, fact("ply", `${this.ply} of ${plies.length}`), fact("result", results(returns)), before ? fact("last move", before.text) : "");
      show(this.targets);
      return;
    }
    const mover = now.player < 0 ? "chance" : seatName(now.player, returns.length);
    show(this.facts, fact("ply", `${this.ply} of ${plies.length}`), fact("to move", mover), fact("plays", now.text),
      fact("value for mover", now.values ? value(now.values[now.player]) : "–"), fact("simulations", count(now.simulations)), fact("weights", now.simulations ? `v${now.weight_version}` : "–"));
    const most = now.targets[0]?.share ?? 1;
    show(this.targets, now.targets.length ? h("h3", {}, "policy target") : h("p", { class: "empty" }, "not searched: no policy target"),
      now.targets.map((target) => h("div", { class: `target ${target.action === now.action ? "chosen" : ""}`, "data-key": target.action },
        h("span", {}, target.text), h("meter", { min: 0, max: fixed(4)(most), value: fixed(4)(target.share), "aria-label": target.text }), h("span", { class: "number" }, percent(target.share)))));
  }

  #drawList() {
    const rows = this.games.map((game) => h("a", {
      class: "row", "data-key": game.uid, href: `#/games/${encodeURIComponent(this.run)}/${game.uid}`, "aria-current": this.shown?.uid === game.uid && "true",
    }, h("b", {}, `#${game.uid}`), h("span", { title: results(game.returns) }, results(game.returns)), h("span", { class: "muted" }, `${game.plies} plies`),
    h("span", { class: "muted" }, versions(game.weight_versions)), h("span", { class: "muted when" }, ago(game.finished_ms))));
    show(this.list, h("h2", {}, "games ", h("button", { type: "button", class: "quiet", "data-list": "newest" }, "newest")), rows.length ? rows : h("p", { class: "empty" }, "no game was finished yet"),
      this.next ? h("button", { type: "button", class: "quiet", "data-list": "older" }, "older games") : "");
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

const versions = ([low, high]) => (high === 0 ? "–" : low === high ? `v${low}` : `v${low}–${high}`);
