// All runs in one table.

import { call } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { ago, clock } from "../web/format.js";

export class Overview {
  element = h("section", { class: "panel" });
  asks = [[2000, this.refresh]];

  async refresh() {
    const runs = await call("/v1/runs");
    const rows = runs.map((run) => h("tr", { "data-key": run.name },
      h("td", {}, h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, run.name)), h("td", {}, run.game),
      h("td", {}, h("span", { class: `pill ${run.state}` }, run.state)), h("td", {}, run.reason),
      h("td", { class: "number" }, clock(run.active_s)), h("td", { class: "number" }, ago(run.created_ms))));
    const head = ["run", "game", "state", "reason", "active", "created"].map((name) => h("th", { scope: "col" }, name));
    show(this.element, h("h2", {}, "runs"), rows.length
      ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)))
      : h("p", { class: "empty" }, "no runs yet; `azq up` starts one"));
  }
}
