// The weights of a run: each version with what it was evaluated on and what became of it, and the buttons that say which serves.

import { call, path } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { agreed } from "../web/frame.js";
import { count, eloText, percent } from "../web/format.js";
import { table } from "./tables.js";

const SHOWN = 12;
const TEXTS = {
  promote: ["Promote", "Self-play and players use this version from now on."],
  pin: ["Pin", "This version serves until it is unpinned, whatever is learned meanwhile."],
  unpin: ["Unpin", "The run goes back to serving the version that its rules choose."],
  rollback: ["Roll back", "The version that served before serves again."],
};

export class Weights {
  /** `act` runs an action, tells how it ended, and looks again. */
  constructor(run, act) {
    this.run = run;
    this.table = h("div", {});
    this.general = h("span", { class: "controls" }, button("unpin", "Unpin"));
    this.element = h("section", { class: "panel", id: "weights" }, h("h2", {}, "Weights ", this.general), this.table);
    this.element.addEventListener("click", async ({ target: { dataset } }) => {
      if (!dataset.do || !(await agreed(`${TEXTS[dataset.do][0]}${dataset.version ? ` version ${dataset.version}` : ""}?`, TEXTS[dataset.do][1], TEXTS[dataset.do][0]))) return;
      const what = dataset.version ? `${dataset.version}/${dataset.do}` : dataset.do;
      act(() => call(path(this.run, `/weights/${what}`), { method: "POST" }),
        (done) => `Version ${done.version} ${done.deed.replace("_", " ")}; version ${done.serving} serves`);
    });
  }

  async ask() {
    const found = await call(path(this.run, `/weights?limit=${SHOWN}`));
    this.general.querySelector("[data-do=unpin]").hidden = !found.some((one) => one.pinned);
    show(this.table, found.length ? table(
      ["Version", "Action", "State", "#Step", "#Bytes", "#Elo", "#Graded", "#Served by"], found.map((one) => this.#row(one)))
      : h("p", { class: "empty" }, "No weights yet"));
  }

  #row(one) {
    const state = one.pinned ? "pinned" : one.state.replace("_", " ");
    const elo = one.score !== null && one.score !== undefined ? `score ${count(one.score)} ± ${count((one.score_high - one.score_low) / 2)}` : one.elo === null ? "–" : eloText(one.elo, one.elo_low, one.elo_high);
    const share = one.loss !== null && one.loss !== undefined ? `${(1000 * one.loss).toFixed(1)} millipoints` : one.errors === null ? "" : percent(one.errors / one.graded_positions);
    const graded = share ? `${share} of ${count(one.graded_positions)}` : "–";
    return { key: one.version, cells: [
      h("td", { title: one.sha256 }, `v${one.version} `, one.serves ? pill(one.served_by) : ""),
      h("td", {}, one.serves ? button("rollback", "Roll back") : button("promote", "Promote", one.version), one.pinned ? "" : button("pin", "Pin", one.version)),
      state ? h("span", { class: "tag" }, state) : "", count(one.step), one.size ? count(one.size) : "–", elo, graded,
      one.served_by ? String(one.served_by) : "",
    ] };
  }
}

/** The version that is to serve; the workers load that of a run that is over when somebody asks for a move. */
const pill = (servers) => h("span", servers ? { class: "pill good" } : { class: "pill", title: "No inference worker has it loaded; a request for a move loads it" }, servers ? "Serves" : "At rest");

const button = (what, text, version) => h("button", { type: "button", class: "quiet", "data-do": what, "data-version": version }, text);
