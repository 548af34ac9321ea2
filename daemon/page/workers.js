// The fleet by host: role, heartbeat, rates. A worker that fell silent stays in sight for a while.

import { h, show } from "../web/dom.js";
import { count, percent, span } from "../web/format.js";

const LATE_S = 4;
const SILENT_S = 8;
const REMEMBERED_MS = 120_000;
const OPEN_UP_TO = 40; // workers; more, and the hosts begin closed

/** What a process does, by role: [rate, text]. */
const DOES = {
  selfplay: [["games_per_s", (value) => `${count(value)} games/s`], ["simulations_per_s", (value) => `${count(value)} sims/s`]],
  eval: [["games_per_s", (value) => `${count(value)} games/s`], ["simulations_per_s", (value) => `${count(value)} sims/s`]],
  inference: [["evaluations_per_s", (value) => `${count(value)} evals/s`], ["mean_batch", (value) => `batch ${count(Math.round(value))}`],
    ["network_busy", (value) => `busy ${percent(value, 0)}`]],
  learner: [["samples_per_s", (value) => `${count(value)} samples/s`]],
};

/** What the driver of the GPU that a process computes on tells of it. */
const GPU = [["gpu_busy", (value) => `GPU ${percent(value, 0)}`], ["gpu_memory_used_bytes", (value) => `${count(value)}B`],
  ["gpu_power_w", (value) => `${value.toFixed(0)} W`], ["gpu_temperature_c", (value) => `${value.toFixed(0)} °C`]];

const tone = (age_s) => (age_s >= SILENT_S ? "bad" : age_s >= LATE_S ? "warn" : "good");
const rates = (worker) => [...(DOES[worker.role] ?? []), ...GPU].filter(([rate]) => rate in worker.rates).map(([rate, text]) => text(worker.rates[rate]));
const does = (worker) => [...rates(worker), worker.note].filter(Boolean).join(" · ");

export class Fleet {
  element = h("section", { class: "panel", id: "workers" });
  #seen = new Map(); // worker -> {worker, at}
  #toggled = new Map(); // host -> open

  constructor() {
    this.content = h("div", {});
    this.element.append(this.content);
    this.element.addEventListener("click", (event) => {
      const host = event.target.closest("button[data-host]")?.dataset.host;
      if (host === undefined) return;
      this.#toggled.set(host, !this.#isOpen(host));
      this.#show();
    });
  }

  draw(workers) {
    const now = Date.now();
    for (const worker of workers) this.#seen.set(worker.worker, { worker, at: now });
    for (const [name, { at }] of this.#seen) if (now - at > REMEMBERED_MS) this.#seen.delete(name);
    this.now = now;
    this.live = workers.length;
    this.#show();
  }

  #isOpen(host) {
    return this.#toggled.get(host) ?? this.#seen.size <= OPEN_UP_TO;
  }

  #show() {
    const hosts = Map.groupBy([...this.#seen.values()], ({ worker }) => worker.host);
    const head = ["Process", "Queues", "Rates", "Up", "Heartbeat"].map((name, i) => h("th", { scope: "col", class: i > 2 && "number" }, name));
    show(this.content, h("h2", {}, "Workers ", h("span", { class: "muted" }, `${this.live} live on ${hosts.size} host${hosts.size === 1 ? "" : "s"}`)),
      hosts.size === 0 ? h("p", { class: "empty" }, "No workers running. Start one with `azq worker` or `azq up`.")
        : h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, head)),
          [...hosts].sort().map(([host, members]) => this.#host(host, members)))));
  }

  #host(host, members) {
    const open = this.#isOpen(host);
    const tags = [...new Set(members.flatMap(({ worker }) => worker.tags))].sort();
    const roles = Map.groupBy(members, ({ worker }) => worker.role);
    const oldest = Math.max(...members.map((member) => this.#age(member)));
    return h("tbody", { "data-key": host },
      h("tr", { class: "host" }, h("th", { colspan: 3, scope: "rowgroup" },
        h("button", { type: "button", class: "fold", "data-host": host, "aria-expanded": String(open) }, `${open ? "▾" : "▸"} ${host}`),
        tags.map((tag) => h("span", { class: "tag" }, tag)),
        h("span", { class: "muted" }, [...roles].sort().map(([role, list]) => `${list.length} ${role}`).join(", "))),
      h("td", {}), h("td", { class: `number ${tone(oldest)}` }, open ? "" : `≤ ${span(oldest)}`)),
      open ? members.sort((one, other) => order(one).localeCompare(order(other))).map((member) => this.#row(member)) : []);
  }

  #age({ worker, at }) {
    return worker.age_s + (this.now - at) / 1000;
  }

  #row(member) {
    const { worker } = member;
    const age = this.#age(member);
    return h("tr", { "data-key": worker.worker, "data-worker": worker.worker }, h("td", { title: worker.worker }, worker.role, h("span", { class: "muted" }, ` ${worker.run || worker.pid}`)),
      h("td", {}, worker.queues.join(" ") || "–"), h("td", {}, does(worker) || "–"), h("td", { class: "number" }, span(worker.up_s)),
      h("td", { class: `number beat ${tone(age)}` }, this.now > member.at ? `silent ${span(age)}` : span(age)));
  }
}

const order = ({ worker }) => `${worker.role} ${worker.worker}`;
