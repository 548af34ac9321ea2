// The newest jobs of a run: what became of each, how long it waited and ran, and why it failed last.

import { call } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { ago, span } from "../web/format.js";
import { table } from "./tables.js";

const SHOWN = 100;
const STATES = ["all", "queued", "leased", "done", "failed", "cancelled"];
const TONES = { queued: "paused", leased: "running", failed: "failed" };  // of runs; all others are over

export class JobsView {
  asks = [[3000, this.refresh]];

  constructor(run) {
    this.run = run;
    this.state = STATES[0];
    this.filter = h("div", { class: "spans", role: "group", "aria-label": "State" });
    this.table = h("div", {});
    this.element = h("section", { class: "panel", id: "jobs" },
      h("h1", {}, "Jobs ", h("span", { class: "muted" }, `newest ${SHOWN}`)), this.filter, this.table);
    this.filter.addEventListener("click", ({ target }) => {
      if (target.dataset.state) location.hash = `#/jobs/${encodeURIComponent(run)}/${target.dataset.state}`;
    });
  }

  /** The address says which state is shown. */
  goTo([state]) {
    this.state = STATES.includes(state) ? state : STATES[0];
    show(this.filter, STATES.map((one) => h("button", { type: "button", class: "quiet", "data-state": one, "aria-pressed": String(one === this.state) }, one)));
    this.refresh().catch(() => {});  // the next look, a moment later, tells what is wrong
  }

  async refresh() {
    const { state } = this;
    const jobs = await call(`/v1/jobs?run=${encodeURIComponent(this.run)}&limit=${SHOWN}&${state === "all" ? "active=false" : `state=${state}`}`);
    if (state !== this.state) return;  // another was asked for meanwhile
    show(this.table, jobs.length ? table(["Job", "Queue", "State", "#Attempts", "#Created", "#Waited", "#Ran", "#Ended", "Worker", "Last failure"], jobs.map(row))
      : h("p", { class: "empty" }, state === "all" ? "No jobs yet" : `No ${state} jobs`));
  }
}

function row(job) {
  const until = job.ended_ms || Date.now();
  return { key: job.job_id, cells: [job.job_id, `${job.kind}.${job.tag}`, h("span", { class: `pill ${TONES[job.state] ?? "finished"}` }, job.state), job.attempt,
    ago(job.created_ms), span(Math.max(0, (job.claimed_ms || until) - job.created_ms) / 1000),
    job.claimed_ms && job.state !== "queued" ? span(Math.max(0, until - job.claimed_ms) / 1000) : "–", ago(job.ended_ms), job.owner || "–",
    h("td", { class: "why" }, job.error)] };
}
