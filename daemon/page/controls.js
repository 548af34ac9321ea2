// Buttons that change a run. What the server refuses is shown in its own words.

import { Away, Refused, call, newKey, path } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { agreed } from "../web/frame.js";

const number = (value) => (value === "" ? undefined : Number(value));

export class Controls {
  /** `changed` is called after each change. */
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.buttons = h("span", {});
    this.answer = h("output", { id: "answer", role: "status" });
    this.tags = h("datalist", { id: "tags" });
    this.dialog = this.#makeDialog();
    this.element = h("div", { class: "controls" }, this.answer, this.buttons, this.dialog);
    this.buttons.addEventListener("click", (event) => this.#press(event.target.dataset.do));
  }

  draw(status, queues) {
    const button = (name, text, off = false) => h("button", { type: "button", "data-do": name, disabled: off }, text);
    this.minutes = status.active_s / 60;
    show(this.buttons, status.state === "running" ? button("pause", "Pause") : status.state === "paused" ? button("resume", "Resume") : button("continue", "Continue…"),
      status.state === "finished" && button("print", "Print"), button("enqueue", "Enqueue…"));
    show(this.tags, [...new Set(queues.filter((one) => one.workers).map((one) => one.queue.split(".").slice(1).join(".")))].map((tag) => h("option", { value: tag })));
  }

  #press(what) {
    if (what === "enqueue") {
      show(this.problem);
      this.key = newKey();
      this.dialog.showModal();
    } else if (what === "print") print();
    else if (what === "continue") this.#continue();
    else if (what) this.#do(this.answer, () => call(path(this.run, `/${what}`), { method: "POST" }), (run) => `${run.name} is ${run.state}`);
  }

  async #continue() {
    const more = await agreed("Continue this run", "It goes on with its games and checkpoint until the new goal.", "Continue",
      h("input", { type: "number", min: 1, value: 10, required: true, "aria-label": "More minutes" }));
    const body = { until: { minutes: this.minutes + Number(more) } };
    if (more) await this.#do(this.answer, () => call(path(this.run, "/resume"), { method: "POST", body }), (run) => `${run.name} is ${run.state}`);
  }

  /** Runs an action, and tells beside the buttons how it ended. */
  act(action, tell) {
    return this.#do(this.answer, action, tell);
  }

  /** Runs an action and tells how it ended; true when it went through. */
  async #do(place, action, tell) {
    show(place, h("span", { class: "muted" }, "…"));
    try {
      show(place, h("span", {}, tell(await action())));
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Away)) throw error;
      show(place, h("span", { class: "bad" }, error instanceof Away ? "The daemon is away; nothing was changed, or its answer was lost" : error.message));
      return false;
    }
    await this.changed().catch(() => {});  // the next look tells what is wrong
    return true;
  }

  #makeDialog() {
    const field = (name, text, attributes) => h("label", {}, text, h("input", { name, ...attributes }));
    const match = h("fieldset", { "data-kind": "eval" },
      field("first", "First", { value: "latest", required: true }), field("second", "Second", { value: "uct:100", required: true }),
      field("match_games", "Games", { type: "number", min: 1, value: 40, required: true }),
      field("num_simulations", "Simulations", { type: "number", min: 1, value: 64, required: true }));
    const selfplay = h("fieldset", { "data-kind": "selfplay" },
      field("games", "Games in flight", { type: "number", min: 1, placeholder: "the run's" }),
      field("slice_s", "Slice, seconds", { type: "number", min: 1, max: 600, placeholder: "the run's" }));
    const kind = (value, text, checked) => h("label", { class: "radio" }, h("input", { type: "radio", name: "kind", value, checked }), text);
    this.problem = h("p", { class: "problem", role: "alert" });
    this.form = h("form", { method: "dialog" }, h("h2", { id: "enqueue-title" }, "Enqueue a job"),
      h("div", { class: "kinds", role: "radiogroup", "aria-label": "Kind of job" }, kind("selfplay", "Self-play", true), kind("eval", "Evaluation match")),
      selfplay, match, field("tag", "Hardware tag", { list: "tags", placeholder: "the run's" }), this.tags, this.problem,
      h("menu", {}, h("button", { type: "button", value: "cancel" }, "Cancel"), h("button", { type: "submit", class: "first" }, "Enqueue")));
    this.form.addEventListener("input", () => (this.key = newKey()));  // another job; the same form sent again is the same job
    this.form.addEventListener("change", () => this.#drawKind());
    this.form.addEventListener("submit", (event) => this.#submit(event));
    this.form.querySelector("[value=cancel]").addEventListener("click", () => this.dialog.close());
    this.#drawKind();
    return h("dialog", { "aria-labelledby": "enqueue-title" }, this.form);
  }

  #drawKind() {
    const kind = new FormData(this.form).get("kind");
    for (const part of this.form.querySelectorAll("fieldset")) {
      part.hidden = part.dataset.kind !== kind;
      part.disabled = part.hidden;
    }
  }

  async #submit(event) {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(this.form));
    const body = { run: this.run, kind: values.kind, tag: values.tag || undefined };
    if (values.kind === "selfplay") Object.assign(body, { games: number(values.games), slice_s: number(values.slice_s) });
    else body.match = { first: values.first, second: values.second, games: number(values.match_games), num_simulations: number(values.num_simulations) };
    const queue = () => call("/v1/jobs", { method: "POST", body, key: this.key });
    let message = "";
    if (!(await this.#do(this.problem, queue, (job) => (message = `Job ${job.job_id} waits in ${job.kind}.${job.tag}`)))) return;
    show(this.answer, h("span", {}, message));
    this.dialog.close();
  }
}
