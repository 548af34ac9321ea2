// The front of a run's page: one sentence, how strong the network has become, and its newest game on a board.

import { call, path } from "../web/api.js";
import { Board } from "../web/board.js";
import { Chart } from "../web/chart.js";
import { h, show } from "../web/dom.js";
import { clock, span } from "../web/format.js";
import { MEASURES } from "../web/measures.js";
import { results, viewOf } from "../web/replay.js";

const TONES = { Learning: "good", Finished: "good", Not: "bad", Getting: "bad", Failed: "bad", Perhaps: "warn", Standing: "warn" };
const COLOURS = { "spin-up": 7, fill: 2, main: 1, final: 3 };
const PLY_MS = 700, REST_MS = 3000, ABSENT_MS = 20_000;

/** The sentence; a finding against the run goes before. */
export function sentence(status, finding = "") {
  const text = (status.state === "running" && finding) || status.headline;
  return h("p", { id: "headline", class: `headline ${TONES[text.split(" ")[0]] ?? ""}`, role: "status" }, text);
}

export class Strength {
  constructor() {
    const drawn = (kind, height) => new Chart({ ...MEASURES[kind], series: [{ name: MEASURES[kind].title, colour: 3, points: true }], height,
      formatX: (ms) => clock(Math.max(0, ms - (this.began_ms ?? ms)) / 1000), empty: "First figure at about 0:20", group: this.group });
    this.group = new Set();
    this.main = drawn("elo", 264);
    this.elo = drawn("elo", 118);
    this.caption = h("p", { class: "stages muted", id: "stages" });
    this.element = h("div", { class: "stack" }, this.main.element, this.caption, this.elo.element);
  }

  drawStages(stages) {
    this.began_ms = stages[0]?.began_ms;
    this.stages = stages;
    show(this.caption, stages.map((one) => h("span", { "data-stage": one.name, title: `Began ${new Date(one.began_ms).toLocaleString("en-GB")}` },
      h("i", { class: `c${COLOURS[one.name]}` }), lasted(one))));
    if (this.arena) this.draw(this.arena);
  }

  draw(arena) {
    const { headline, trends } = this.arena = arena;
    if (this.kind !== headline) this.main.rename(MEASURES[this.kind = headline]);
    const end = Math.max(...(this.stages ?? []).map((one) => one.ended_ms ?? Date.now()), this.began_ms ?? 0);
    for (const [chart, kind] of [[this.main, headline], [this.elo, "elo"]]) {
      const known = trends[kind] ?? [];
      const column = (name) => known.map((point) => point[name]);
      chart.update({ x: column("at_ms"), labels: known.map((point) => `v${point.version}, ${chart.formatX(point.at_ms)}`), ys: [column("value")], bands: known[0]?.low === null ? {} : { 0: [column("low"), column("high")] },
        domain: this.began_ms ? [this.began_ms, end] : null, shades: (this.stages ?? []).map((one) => ({ from: one.began_ms, to: one.ended_ms ?? end, colour: COLOURS[one.name], text: lasted(one) })) });
    }
    this.elo.element.hidden = headline === "elo" || !trends.elo?.length;
  }
}

/** Main 47 min so far, paused 2 min. */
function lasted(stage) {
  const paused_ms = stage.pauses.reduce((sum, one) => sum + (one.ended_ms === null ? 0 : one.ended_ms - one.began_ms), 0);
  const name = stage.name[0].toUpperCase() + stage.name.slice(1);
  return `${name} ${span(stage.lasted_s)}${stage.ended_ms === null ? " so far" : ""}${paused_ms ? `, paused ${span(paused_ms / 1000)}` : ""}`;
}

/** The newest recorded game, played move by move; still where motion is unwelcome. */
export class NewestGame {
  constructor(run) {
    this.run = run;
    this.head = h("h2", {}, "Newest game");
    this.board = new Board();
    this.element = h("section", { class: "panel newest-game", hidden: true }, this.head, this.board.element);
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  leave() {
    clearTimeout(this.timer);
  }

  /** Asks for the newest game once the one before is over; a run whose games are on another host shows none. */
  async ask() {
    if (this.timer || Date.now() < this.again_ms) return;
    const [newest] = await call(path(this.run, "/games?limit=1")).catch((error) => {
      this.again_ms = error.status === 404 ? Date.now() + ABSENT_MS : 0;
      return [];
    });
    if (!newest || newest.uid === this.game?.uid) return;
    this.game = await call(path(this.run, `/games/${newest.uid}`)).catch(() => null);
    this.element.hidden = !this.game || Boolean(this.game.note);
    if (!this.element.hidden) this.#show(this.still ? this.game.plies.length : 0);
  }

  #show(ply) {
    const { plies, uid, returns } = this.game;
    const over = ply >= plies.length;
    this.board.draw(viewOf(this.game, ply));
    show(this.head, "Newest game ", h("a", { href: `#/games/${encodeURIComponent(this.run)}/${uid}/${ply}` }, `#${uid}`),
      h("span", { class: "muted" }, over ? ` · result ${results(returns)}` : ` · move ${ply} of ${plies.length}`));
    this.timer = this.still ? null : setTimeout(() => {
      this.timer = null;
      if (!over) this.#show(ply + 1);
    }, over ? REST_MS : PLY_MS);
  }
}
