// Recorded games: a list, newest first, and one game ply by ply.

import { call, callPage, path } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { ago } from "../web/format.js";
import { Replay, results } from "../web/replay.js";

const PAGE = 40;

export class Viewer {
  asks = [[5000, this.refresh]];

  constructor(run, rest) {
    this.run = run;
    this.games = [];
    this.next = null;
    this.list = h("section", { class: "panel list", id: "games" });
    this.replay = new Replay((ply) => history.replaceState(null, "", `#/games/${encodeURIComponent(run)}/${this.shown.uid}/${ply}`));
    this.element = h("div", { class: "viewer" }, this.list, this.replay.element);
    this.list.addEventListener("click", (event) => {
      const asked = event.target.closest("[data-list]")?.dataset.list;
      if (asked) this[asked]().catch(() => {});  // the page's own rhythm tells what is wrong
    });
    this.goTo(rest);
  }

  get shown() {
    return this.replay.shown;
  }

  leave() {
    this.replay.leave();
  }

  /** Opens the game and ply that the address names. */
  goTo([uid, ply]) {
    this.wanted = uid ? { uid, ply: Number(ply ?? 0) } : null;
    if (uid && String(this.shown?.uid) !== uid) this.refresh().catch(() => {});  // the page requests it again
    else if (this.shown && ply !== undefined) this.replay.goToPly(Number(ply));
  }

  async refresh() {
    if (this.wanted && String(this.shown?.uid) !== this.wanted.uid) await this.#open(this.wanted);
    if (this.games.length && (this.shown || this.games.length > PAGE || this.list.matches(":hover, :focus-within"))) return;  // somebody reads
    await this.newest();
    if (!this.shown && !this.wanted && this.games.length) await this.#open({ uid: this.games[0].uid, ply: 0 });
  }

  async newest() {
    const page = await callPage(path(this.run, `/games?limit=${PAGE}`)).catch((error) => this.#noGames(error));
    if (!page) return;
    Object.assign(this, { games: page.items, next: page.next });
    this.#drawList();
  }

  #noGames(error) {
    if (error.status !== 404) throw error;
    show(this.list, h("h1", {}, "Games"), h("p", { class: "empty" }, error.message));
    return null;
  }

  async older() {
    const page = await callPage(this.next);
    this.games.push(...page.items);
    this.next = page.next;
    this.#drawList();
  }

  async #open({ uid, ply }) {
    try {
      this.replay.open(await call(path(this.run, `/games/${uid}`)), ply);
    } catch (error) {
      if (!error.status || error.status === 401) throw error;
      this.replay.refuse(error.message);
      this.wanted = null;
      return;
    }
    this.#drawList();
  }

  #drawList() {
    const rows = this.games.map((game) => h("a", {
      class: "row", "data-key": game.uid, href: `#/games/${encodeURIComponent(this.run)}/${game.uid}`, "aria-current": this.shown?.uid === game.uid && "true",
    }, h("b", {}, `#${game.uid}`), h("span", { title: results(game.returns) }, results(game.returns)), h("span", { class: "muted" }, `${game.plies} plies`),
    h("span", { class: "muted" }, versions(game.weight_versions)), h("span", { class: "muted when" }, ago(game.finished_ms))));
    show(this.list, h("h1", {}, "Games ", h("button", { type: "button", class: "quiet", "data-list": "newest" }, "Newest")), rows.length ? rows : h("p", { class: "empty" }, "No finished games yet"),
      this.next ? h("button", { type: "button", class: "quiet", "data-list": "older" }, "Older games") : "");
  }
}

const versions = ([low, high]) => (high === 0 ? "–" : low === high ? `v${low}` : `v${low}–${high}`);
