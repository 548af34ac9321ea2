// Notices of the browser when a run ends, also while this tab is behind others; a button asks for the right to show them.

import { h, show } from "../web/dom.js";

const ENDS = ["finished", "failed"];

/** The runs that ended between two looks. */
export const ended = (before, now) => now.filter((run) => ENDS.includes(run.state) && before.has(run.name) && before.get(run.name) !== run.state);

/** A browser without notices, or a page that it does not trust with them, has no such right to ask for. */
const may = (permission) => "Notification" in window && window.isSecureContext && Notification.permission === permission;

export class Notices {
  element = h("span", { id: "notices" });
  #before = new Map();

  constructor() {
    this.element.addEventListener("click", async () => {
      await Notification.requestPermission();
      this.#draw();
    });
    this.#draw();
  }

  /** Whether notices are wanted, also while this tab is hidden. */
  get wanted() {
    return may("granted");
  }

  /** Takes note of the runs as they are, and shows which have ended since the last time. */
  note(runs) {
    if (this.wanted) ended(this.#before, runs).forEach(notify);
    this.#before = new Map(runs.map((run) => [run.name, run.state]));
  }

  #draw() {
    show(this.element, may("default") && h("button", { type: "button", title: "Show a browser notification when a run ends" }, "Notify me"));
  }
}

function notify(run) {
  const notice = new Notification(`${run.name} ${run.state}`, { body: run.reason, icon: "../web/icon.svg", tag: `azq ${run.name}` });
  notice.onclick = () => {
    window.focus();
    location.hash = `#/run/${encodeURIComponent(run.name)}`;
  };
}
