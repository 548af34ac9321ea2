// What volunteers have done for a run, who they are, how strong it has become, and their newest games; public.

import { h, show } from "../dom.js";
import { ago, count, fixed, many, signed, span, whole } from "../format.js";
import { MEASURES } from "../measures.js";
import { showPages, themeButton } from "../frame.js";
import { fetchPublic, gameName, knownRun, runOfAddress, strengthChart } from "../public.js";
import { Replay, results } from "../replay.js";

const ASK_MS = 5000;
const PERIODS = [["ever", "In all"], ["month", "This month"], ["day", "Today"]];
const SHOWN = 12; // versions in the table
const AREA = { role: "region", tabindex: 0 }; // which scrolls, by keys too
const $ = (id) => document.getElementById(id);
let facts = null, problem = "", byDevice = false, opened = "";
const replay = new Replay((ply) => history.replaceState(null, "", `#${opened}/${ply}`));
const chart = strengthChart();

/** Persons with what all their devices did, the most games first. Pure. */
export function persons(leaders) {
  const found = new Map();
  for (const { name, device, games, samples, last_ms, uptime_s } of leaders) {
    const one = found.get(name) ?? { name, devices: 0, games: 0, samples: 0, last_ms: 0, uptime_s: 0 };
    found.set(name, { ...one, devices: one.devices + (device ? 1 : 0), games: one.games + games, samples: one.samples + samples, uptime_s: one.uptime_s + (uptime_s ?? 0), last_ms: Math.max(one.last_ms, last_ms ?? 0) });
  }
  return [...found.values()].sort((one, other) => other.games - one.games);
}

function build() {
  const toggle = h("button", { id: "by", type: "button", class: "quiet" });
  toggle.addEventListener("click", () => {
    byDevice = !byDevice;
    draw();
  });
  const runs = h("select", { id: "runs", "aria-label": "Run", hidden: true });
  runs.addEventListener("change", () => location.assign(`?run=${encodeURIComponent(runs.value)}`));
  $("main").replaceChildren(
    h("section", { class: "panel lead" }, h("div", {}, h("h1", { id: "title" }, "Progress"), h("p", { id: "about", class: "muted" })),
      h("div", { class: "go" }, runs, h("a", { id: "join", class: "button", href: "../contribute/" }, "Contribute"))),
    h("p", { id: "problem", class: "bad", role: "alert" }),
    h("div", { id: "totals", class: "tiles" }),
    h("div", { id: "rest", class: "halves" },
      h("div", { class: "stack" }, h("section", { class: "panel" }, h("h2", {}, "Contributors ", toggle), h("div", { id: "leaders", class: "scroll long", ...AREA, "aria-label": "Contributors" })),
        h("section", { class: "panel" }, h("h2", {}, "Newest games"), h("div", { id: "newest", class: "scroll long", ...AREA, "aria-label": "Newest games" }))),
      h("div", { class: "stack" }, chart.element, h("section", { class: "panel" }, h("h2", {}, "Versions"), h("div", { id: "versions", class: "scroll", ...AREA, "aria-label": "Versions" })))),
    replay.element);
  showPages("progress");
  document.querySelector("header").append(themeButton());
}

function draw() {
  show($("problem"), problem);
  for (const id of ["totals", "rest"]) $(id).hidden = !facts;
  show($("link"), h("span", { class: `pill ${problem ? "bad" : facts ? "good" : ""}` }, problem ? "Away" : facts ? `${many(facts.tabs, "tab")} now` : "No run"));
  if (!facts) return show($("about"), problem ? "" : "No run needs volunteers right now. This page checks again every few seconds.");
  $("runs").hidden = facts.runs.length < 2;
  show($("runs"), facts.runs.map(({ run }) => h("option", { value: run, selected: run === facts.run }, run)));
  show($("title"), `Training a ${gameName(facts.game)} AI`);
  document.title = `${gameName(facts.game)}, version ${facts.version} · azq`;
  show($("about"), `${MEASURES[facts.headline].title}: ${facts.strength === "–" ? "not measured yet" : facts.strength}. ${MEASURES[facts.headline].meaning} Version ${facts.version} of run ${facts.run}, trained on ${many(facts.run_totals.games, "game")}. Volunteers' share, for ${facts.runs.length > 1 ? "all runs" : "this run"}:`);
  show($("totals"), PERIODS.map(([period, words]) => {
    const { games, samples, contributors } = facts.totals[period];
    return h("div", { class: "tile", "data-tile": period }, h("span", {}, words), h("b", {}, many(games, "game")), h("span", {}, `${count(samples)} samples`), h("span", {}, many(contributors, "contributor")));
  }));
  drawLeaders();
  drawVersions();
  drawNewest();
  chart.draw(facts);
}

const table = (heads, rows, empty) => (rows.length ? h("table", {}, h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { class: kind }, text)))), h("tbody", {}, rows)) : h("p", { class: "empty" }, empty));
const cell = (text, kind) => h("td", { class: kind }, text);

function drawLeaders() {
  show($("by"), byDevice ? "By person" : "By device");
  const rows = byDevice ? facts.leaders : persons(facts.leaders);
  const second = (one) => (byDevice ? one.device || "–" : String(one.devices || "–"));
  show($("leaders"), table([["#", "number"], ["Name"], [byDevice ? "Device" : "Devices"], ["Games", "number"], ["Games/s", "number"], ["Uptime", "number"], ["Samples", "number"], ["Last", "number"]],
    rows.map((one, i) => h("tr", {}, cell(i + 1, "number muted"), cell(one.name, "name"), cell(second(one), "muted"), cell(whole(one.games), "number"), cell(one.uptime_s ? fixed(2)(one.games / one.uptime_s) : "–", "number"), cell(one.uptime_s ? span(one.uptime_s) : "–", "number"), cell(count(one.samples), "number"), cell(ago(one.last_ms), "number muted"))),
    "No contributors yet"));
}

function drawVersions() {
  const against = facts.versions.findLast((one) => one.against)?.against;
  const points = (one) => (one.points === null || one.points === undefined ? "–" : `${one.points < 0 ? "−" : "+"}${Math.abs(one.points).toFixed(3)} ± ${(1.96 * one.points_se).toFixed(3)}`);
  show($("versions"), table([["Version"], ["Elo", "number"], ["95 %", "number"], ["Games", "number"], ...(against ? [[`Points against ${against}`, "number"]] : [])],
    facts.versions.slice(-SHOWN).reverse().map((one) => h("tr", {}, cell(`v${one.version}`), cell(signed(one.elo), "number"), cell(`${signed(one.low)} to ${signed(one.high)}`, "number muted"), cell(whole(one.games), "number"),
      against ? cell(points(one), "number") : "")), "No version is rated yet"));
}

function drawNewest() {
  show($("newest"), table([["Game"], ["Result"], ["Moves", "number"], ["By"], ["Finished", "number"]],
    facts.newest.map((one) => h("tr", { "aria-current": String(one.uid) === opened && "true" }, h("td", {}, h("a", { href: `#${one.uid}` }, `#${one.uid}`)), cell(results(one.returns)), cell(one.plies, "number"), cell(one.name, "name"), cell(ago(one.finished_ms), "number muted"))),
    "No finished games yet"));
}

/** Opens the game and ply that the address names. */
async function route() {
  const [uid, ply] = location.hash.slice(1).split("/");
  if (!/^\d+$/.test(uid)) return;
  if (uid === opened && ply !== undefined) return replay.goToPly(Number(ply));
  opened = uid;
  try {
    replay.open(await fetchPublic(`/games/${uid}`, runOfAddress()), Number(ply ?? 0));
  } catch (error) {
    replay.refuse(error.message);
  }
  replay.element.scrollIntoView({ block: "nearest" });
}

async function follow() {
  for (;;) {
    if (!document.hidden) {
      try {
        facts = knownRun(await fetchPublic("", runOfAddress()));
        problem = "";
      } catch (error) {
        problem = error.message;
      }
      draw();
    }
    await new Promise((resolve) => setTimeout(resolve, ASK_MS));
  }
}

if (globalThis.document) {
  build();
  show($("about"), "Loading …");
  for (const id of ["totals", "rest"]) $(id).hidden = true;
  addEventListener("hashchange", route);
  route();
  follow();
}
