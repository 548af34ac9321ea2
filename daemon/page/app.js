// The page put together: which view is shown, who asks the daemon how often, and what happens when it is away.

import { Away, Refused, call, takeToken } from "../web/api.js";
import { h, show } from "../web/dom.js";
import { askForToken, themeButton } from "../web/frame.js";
import { JobsView } from "./jobs.js";
import { Notices } from "./notices.js";
import { Overview } from "./overview.js";
import { RunView } from "./run.js";
import { StudyView } from "./studies.js";
import { Viewer } from "./viewer.js";
import { span } from "../web/format.js";
import { GlossaryView } from "./words.js";

const AGAIN_MS = 2000;
const $ = (id) => document.getElementById(id);
const link = { since: null, problem: "", answered: 0 };
const notices = new Notices();
let view = null;
let runs = [];

/** Where the address points: {page, run, rest}. */
function place() {
  const [page, run, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { page: page || (runs.length === 1 ? "run" : "runs"), run: run || (page ? "" : (runs[0]?.name ?? "")), rest };
}

function makeView({ page, run, rest }) {
  if (page === "run" && run) return new RunView(run);
  if (page === "games" && run) return new Viewer(run, rest);
  if (page === "jobs" && run) return new JobsView(run);
  if (page === "studies" && run) return new StudyView(run);
  if (page === "glossary") return new GlossaryView();
  return new Overview();
}

/** Shows what the address says; a view of the same page and run goes on. */
function route() {
  takeToken();
  const to = place();
  const key = to.page === "runs" ? to.page : `${to.page} ${to.run}`;
  if (view?.key !== key) {
    view?.leave?.();
    view = makeView(to);
    view.key = key;
    show($("main"));
    $("main").append(view.element);
    for (const [every_ms, ask] of view.asks) keepAsking(view, every_ms, ask);
  }
  view.goTo?.(to.rest, to.run);
  drawHead(to);
}

/** Asks again and again while the view is shown; also while the daemon is away, which is shown. */
async function keepAsking(owner, every_ms, ask) {
  while (view === owner) {
    if (!document.hidden) await guarded(() => ask.call(owner));
    await new Promise((resolve) => setTimeout(resolve, link.since ? AGAIN_MS : every_ms));
  }
}

async function guarded(ask) {
  try {
    await ask();
    Object.assign(link, { since: null, problem: "", answered: Date.now() });
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken(error).then(() => guarded(ask));
    if (!(error instanceof Away || error instanceof Refused)) throw error;
    link.since ??= link.answered || Date.now();
    link.problem = error instanceof Away ? "Daemon away, retrying" : error.message;
  } finally {
    drawLink();
  }
}

function drawLink() {
  const away = link.since !== null;
  document.body.classList.toggle("stale", away);
  show($("link"), h("span", { class: `pill ${away ? "bad" : "good"}` }, away ? `${link.problem} · ${span((Date.now() - link.since) / 1000)}` : "Live"));
}

function drawHead(to) {
  show($("runs"), h("option", { value: "" }, "All runs"),
    runs.map((run) => h("option", { value: run.name }, `${run.name}${run.state === "running" ? "" : ` (${run.state})`}`)));
  const ofRun = to.run && !["runs", "studies"].includes(to.page);
  $("runs").value = ofRun ? to.run : "";
  const tab = (page, text) => h("a", { href: `#/${page}/${encodeURIComponent(to.run)}`, "aria-current": to.page === page && "page" }, text);
  const play = h("a", { href: `../web/play/#run=${encodeURIComponent(to.run)}` }, "Play");
  const general = [["runs", "Runs"], ["glossary", "Glossary"]].map(([page, text]) => h("a", { href: `#/${page}`, "aria-current": to.page === page && "page" }, text));
  show($("tabs"), ofRun ? [tab("run", "Run"), tab("games", "Games"), tab("jobs", "Jobs"), h("a", { href: `#/runs/${encodeURIComponent(to.run)}` }, "Compare"), play] : general);
  if (to.page !== "run") document.title = to.run ? `${to.run}, ${to.page} · azq` : "azq";
}

async function askRuns() {
  const before = runs;
  runs = (await call("/v1/runs")).sort((one, other) => (other.state === "running") - (one.state === "running") || other.created_ms - one.created_ms);
  notices.note(runs);
  if (!before.length && !location.hash) route();
  else drawHead(place());
}

$("runs").addEventListener("change", (event) => {
  location.hash = event.target.value ? `#/run/${encodeURIComponent(event.target.value)}` : "#/runs";
});
window.addEventListener("hashchange", route);

document.querySelector("header").append(notices.element, themeButton());
takeToken();
if (location.hash) route();  // what the address names is requested at once
await guarded(askRuns);
if (!view) route();
for (;;) {
  await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  if (!document.hidden || notices.wanted) await guarded(askRuns);
}
