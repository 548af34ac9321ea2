// Buttons that change a run. What the server refuses is shown in its own words.

import { Away, Refused, call, newKey, path } from "../web/api.js";
import { h, show } from "../web/dom.js";

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
    show(this.buttons, status.state === "running" ? button("pause", "pause") : button("resume", "resume"),
      button("enqueue", "enqueue…"));
    show(this.tags, [...new Set(queues.filter((one) => one.workers).map((one) => one.queue.split(".").slice(1).join(".")))].map((tag) => h("option", { value: tag })));
  }

  #press(what) {
    if (what === "enqueue") {
      show(this.problem);
      this.key = newKey();
      this.dialog.showModal();
    } else if (what) this.#do(this.answer, () => call(path(this.run, `/${what}`), { method: "POST" }), (run) => `${run.name} is ${run.state}`);
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
      show(place, h("span", { class: "bad" }, error instanceof Away ? "the daemon is away; nothing was changed, or its answer was lost" : error.message));
      return false;
    }
    await this.changed().catch(() => {});  // the next look tells what is wrong
    return true;
  }

  #makeDialog() {
    const field = (name, text, attributes) => h("label", {}, text, h("input", { name, ...attributes }));
    const match = h("fieldset", { "data-kind": "eval" },
      field("first", "first", { value: "latest", required: true }), field("second", "second", { value: "uct:100", required: true }),
      field("match_games", "games", { type: "number", min: 1, value: 40, required: true }),
      field("num_simulations", "simulations", { type: "number", min: 1, value: 64, required: true }));
    const selfplay = h("fieldset", { "data-kind": "selfplay" },
      field("games", "games in flight", { type: "number", min: 1, placeholder: "the run's" }),
      field("slice_s", "slice, seconds", { type: "number", min: 1, max: 600, placeholder: "the run's" }));
    const kind = (value, text, checked) => h("label", { class: "radio" }, h("input", { type: "radio", name: "kind", value, checked }), text);
    this.problem = h("p", { class: "problem", role: "alert" });
    this.form = h("form", { method: "dialog" }, h("h2", { id: "enqueue-title" }, "enqueue a job"),
      h("div", { class: "kinds", role: "radiogroup", "aria-label": "kind of job" }, kind("selfplay", "self-play", true), kind("eval", "evaluation match")),
      selfplay, match, field("tag", "hardware tag", { list: "tags", placeholder: "the run's" }), this.tags, this.problem,
      h("menu", {}, h("button", { type: "button", value: "cancel" }, "cancel"), h("button", { type: "submit", class: "first" }, "enqueue")));
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
    let told = "";
    if (!(await this.#do(this.problem, queue, (job) => (told = `job ${job.job_id} waits in ${job.kind}.${job.tag}`)))) return;
    show(this.answer, h("span", {}, told));
    this.dialog.close();
  }
}
