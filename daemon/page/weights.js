// The weights of a run: each version with what it was evaluated on and what became of it, and the buttons that say which serves.

import { call, path } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { count, eloText, percent } from "../web/format.js";
import { table } from "./tables.js";

const SHOWN = 12;

export class Weights {
  /** `act` runs an action, tells how it ended, and looks again. */
  constructor(run, act) {
    this.run = run;
    this.table = h("div", {});
    this.general = h("span", { class: "controls" }, button("rollback", "roll back"), button("unpin", "unpin"));
    this.element = h("section", { class: "panel", id: "weights" }, h("h2", {}, "weights ", this.general), this.table);
    this.element.addEventListener("click", ({ target: { dataset } }) => {
      if (!dataset.do) return;
      const what = dataset.version ? `${dataset.version}/${dataset.do}` : dataset.do;
      act(() => call(path(this.run, `/weights/${what}`), { method: "POST" }),
        (done) => `version ${done.version} ${done.deed.replace("_", " ")}; version ${done.serving} serves`);
    });
  }

  async ask() {
    const found = await call(path(this.run, `/weights?limit=${SHOWN}`));
    this.general.querySelector("[data-do=unpin]").hidden = !found.some((one) => one.pinned);
    show(this.table, found.length ? table(
      ["version", "#step", "#bytes", "#Elo", "#graded", "played", "served by", "", ""], found.map((one) => this.#row(one)))
      : h("p", { class: "empty" }, "nothing is published yet"));
  }

  #row(one) {
    const state = one.pinned ? "pinned" : one.state.replace("_", " ");
    const elo = one.score !== null && one.score !== undefined ? `score ${count(one.score)} ± ${count((one.score_high - one.score_low) / 2)}` : one.elo === null ? "–" : eloText(one.elo, one.elo_low, one.elo_high);
    const share = one.loss !== null && one.loss !== undefined ? `${(1000 * one.loss).toFixed(1)} millipoints` : one.errors === null ? "" : percent(one.errors / one.graded_positions);
    const graded = share ? `${share} of ${count(one.graded_positions)}` : "–";
    const played = Object.entries(one.opponents).map(([name, games]) => `${games} with ${name}`).join(", ");
    return { key: one.version, cells: [
      h("td", { title: one.sha256 }, `v${one.version} `, one.serves ? pill(one.served_by) : ""),
      count(one.step), one.size ? count(one.size) : "–", elo, graded, h("td", { class: "muted", title: played }, shortened(played)),
      one.served_by ? String(one.served_by) : "", state ? h("span", { class: "tag" }, state) : "",
      h("td", { class: "number" }, button("promote", "promote", one.version), " ", button("pin", "pin", one.version)),
    ] };
  }
}

/** The version that is to serve; the workers load that of a run that is over when somebody asks for a move. */
const pill = (servers) => h("span", servers ? { class: "pill good" } : { class: "pill", title: "no inference worker has it loaded; a request for a move has them load it" }, servers ? "serves" : "at rest");

const button = (what, text, version) => h("button", { type: "button", class: "quiet", "data-do": what, "data-version": version }, text);

const shortened = (text) => (text.length > 42 ? `${text.slice(0, 40)}…` : text);
