// What one process says when it is asked: the newest lines of its log, and where its threads are.

import { Away, Refused, call } from "../web/api.js";
import { h, show } from "../web/dom.js";

const LINES = 300;
const TOPICS = { log: `log?lines=${LINES}`, stack: "stack" };

export class Inspector {
  constructor() {
    this.title = h("h2", { id: "inspect-title" });
    this.said = h("pre", { class: "said", tabindex: 0, "aria-live": "polite" });
    this.topics = h("menu", {}, Object.keys(TOPICS).map((topic) => h("button", { type: "button", "data-topic": topic }, topic)),
      h("button", { type: "button", value: "close" }, "close"));
    this.element = h("dialog", { id: "inspect", "aria-labelledby": "inspect-title" }, this.title, this.said, this.topics);
    this.topics.addEventListener("click", ({ target }) => (target.value === "close" ? this.element.close() : target.dataset.topic && this.#ask(target.dataset.topic)));
  }

  open(worker) {
    this.worker = worker;
    show(this.title, worker);
    this.element.showModal();
    return this.#ask("log");
  }

  /** The newest question alone may show its answer: the one before may come later. */
  async #ask(topic) {
    const turn = (this.turn = {});
    for (const button of this.topics.querySelectorAll("[data-topic]")) button.setAttribute("aria-pressed", String(button.dataset.topic === topic));
    show(this.said, "…");
    const text = await this.#answer(topic);
    if (turn !== this.turn) return;
    show(this.said, text);
    if (topic === "log") this.said.scrollTop = this.said.scrollHeight;
  }

  async #answer(topic) {
    try {
      const { lines } = await call(`/v1/workers/${encodeURIComponent(this.worker)}/${TOPICS[topic]}`);
      return lines.join("\n") || "it said nothing yet";
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Away)) throw error;
      return h("span", { class: "bad" }, error instanceof Away ? "the daemon is away; ask again" : error.message);
    }
  }
}
