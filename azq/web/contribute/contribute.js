// The page on which a browser makes games for a run: its controls, what it does, and the threads between gateway and workers.

import { at, fetchBytes } from "../address.js";
import { Board } from "../board.js";
import { h, show } from "../dom.js";
import { clock, count, many, whole } from "../format.js";
import { showPages, themeButton } from "../frame.js";
import { fetchPublic, gameName, knownRun, runOfAddress, strengthChart } from "../public.js";
import { sha256 } from "../sha256.js";
import { Crew } from "./crew.js";
import { Kept } from "./kept.js";
import { Link } from "./link.js";
import { MEASURES } from "../measures.js";
import { watchPower } from "./power.js";
import { CONTROLS, load, running as going, save, token } from "./settings.js";

const PAGE = "2"; // of what the gateway speaks with
const AHEAD = 2; // games asked for, for each that is played: the next one is there when one ends
const TELL_MS = 3000, AGAIN_MS = 2000, RUN_MS = 15_000, RATES_S = 10;
const $ = (id) => document.getElementById(id);

const settings = load();
const invite = /^#invite=([\w.~-]+)$/.exec(location.hash)?.[1] ?? "";
const me = { state: "ended", why: "", games: 0, samples: 0, refused: 0, name: "", since: 0, up_ms: 0, shown: null, before: "", bout: null, unfit: false, full: false };
const run = { name: "", game: "", wanted: 0, simulations: 0, facts: null };
const problems = {}; // by what they are about
const marks = []; // [at_ms, totals] of the last seconds
let crew = null, power = null, core = "", told_ms = 0, left = ""; // the run whose games an earlier page left

const link = new Link({
  url: at("/v1/volunteers/tab").replace(/^http/, "ws"),
  hello: () => ({ page: PAGE, token: token.get(), invite, device: settings.device, run: settings.run || run.name || left, name: settings.name }),
  on: { message: hear, state: (state, why) => (state === "ended" && why ? give("gateway", why, false) : Object.assign(me, { state, why }) && draw()) },
  kept: new Kept({ answered: (theirs, uids) => link.forget(theirs, uids) }),
});

// -- what the gateway says

/** What is drawn is garbage afterwards, of which browsers let tens of megabytes gather: so messages and games wait for the next second. */
function hear(message) {
  handlers[message.tag]?.(message);
}

const handlers = {
  Welcome({ token: mine, name, run: theirs }) {
    token.set(mine);
    me.name = name;
    problems.gateway = "";
    if (run.name && run.name !== theirs) crew.reset();
    run.name = theirs;
    ready();
    see();
  },
  ModelUpdate(model) {
    run.game = model.game;
    run.wanted = model.version;
    fetchModel(model).catch((error) => fail("weights", error.message));
  },
  PlayGames({ seed, search, version, games, stop }) {
    if (stop) return crew.forget();
    run.simulations = search.num_simulations;
    const plan = { seed, search, version };
    crew.hand(games.map((game) => ({ ...game, plan })));
    tell();
  },
  EvalGames(asked) {
    takeMatch(asked).catch((error) => noMatches(error.message));
  },
  Accepted({ totals }) {
    Object.assign(me, { games: totals?.games ?? me.games, samples: totals?.samples ?? me.samples });
  },
  Refused({ reason, remedy, uids }) {
    me.refused += uids?.length ?? 0;
    crew.forget(uids ?? []);
    fail(uids?.length ? "games" : "gateway", [uids?.length ? `${many(uids.length, "game")} refused: ${reason}` : reason, remedy].filter(Boolean).join("; "));
  },
  Standing({ figures }) {
    Object.assign(me, { games: figures.games ?? me.games, samples: figures.samples ?? me.samples });
  },
};

async function fetchModel(model) {
  const made = await fetched(model);
  if (model.version === run.wanted) crew.use(made);
}

/** {name, params, version, bytes, test}, as worker.js takes it. */
async function fetched({ game, params, version, sha256: wanted, positions, logits, values, tolerance }) {
  if (!wanted) return { name: game, params, version, sha256: wanted, bytes: null };
  const bytes = await fetchBytes(at(`/models/${wanted}.onnx`), `weights ${version} are`);
  if (sha256(bytes) !== wanted) throw new Error(`weights ${version} were damaged on their way; the ones before stay in use`);
  return { name: game, params, version, sha256: wanted, bytes, test: { positions, logits: floats(logits), values: floats(values), tolerance } };
}

/** Games of a match, once both networks are here. */
async function takeMatch({ seed, search, networks, games }) {
  const key = JSON.stringify([run.name, seed, search, networks.map(({ version }) => version)]);
  if (me.bout?.key !== key) me.bout = { key, made: Promise.all(networks.map(fetched)).then((models) => ({ seed, search, models })) };
  const bout = await me.bout.made;
  if (running()) crew.hand(games.map((game) => ({ ...game, bout })));
}

/** This tab cannot play matches: it gets no more of them. */
function noMatches(reason) {
  me.unfit = true;
  ready();
  fail("match", reason);
}

const floats = (bytes) => new Float32Array(bytes.slice().buffer);

// -- what this tab says

function ready() {
  me.full = link.full;
  if (resting()) return tell();
  const wish = [...(settings.quality < 100 ? [`quality=${settings.quality}`] : []), ...(me.unfit ? [] : ["eval"])];
  const { workers } = settings;
  const games = me.full ? 1 : AHEAD * workers * settings.games;
  link.send({ tag: "WorkerReady", backend: crew.backend || "wasm", workers, core, features: wish, games, version: crew.version, versions: crew.versions });
  tell();
}

function tell() {
  const { games, simulations, evaluations, plies } = crew.totals;
  told_ms = Date.now();
  link.send({ tag: "Progress", games, simulations, evaluations, plies, playing: crew.playing, version: crew.version, cpu: rates().cpu });
}

function beat() {
  link.look();
  const now_ms = Date.now();
  marks.push([now_ms, { ...crew.totals }]);
  while (marks.length > 2 && now_ms - marks[1][0] > 1000 * RATES_S) marks.shift();
  if (link.full !== me.full) ready();
  if (now_ms - told_ms >= TELL_MS) tell();
}

/** Of the last seconds. */
function rates() {
  if (marks.length < 2) return { games: 0, simulations: 0, evaluations: 0, cpu: 0 };
  const [[from_ms, before], [to_ms, now]] = [marks[0], marks.at(-1)];
  const of = (name) => (now[name] - before[name]) / Math.max(0.001, (to_ms - from_ms) / 1000);
  return { games: of("games"), simulations: of("simulations"), evaluations: of("evaluations"), cpu: of("busyMs") / 1000 };
}

// -- start, stop, manners

const running = () => me.since > 0;
const resting = () => power?.why(settings) ?? "";

async function start() {
  for (const about of Object.keys(problems)) problems[about] = "";
  try {
    power ??= await watchPower(steer);
    crew ??= await hire();
  } catch (error) {
    if (error.status === 503) setTimeout(start, AGAIN_MS);
    return fail("page", `${error.message}; ${error.status === 503 ? "trying again" : "load the page again"}`);
  }
  me.since = Date.now();
  going.set(true);
  employ();
  steer();
  link.start();
}

const employ = () => crew.start({ workers: settings.workers, games: settings.games, backend: settings.gpu ? "auto" : "wasm" });

async function hire() {
  const bytes = await fetchBytes(new URL("../azq.wasm", import.meta.url), "the games' rules are");
  core = sha256(bytes);
  return new Crew(bytes, {
    finished: (game) => link.offer(game),
    board: ({ uid, text, match }) => {
      if (me.shown?.uid !== uid) me.before = text;
      else if (me.shown.text !== text) me.before = me.shown.text;
      me.shown = { uid, text, match };
    },
    loaded: (_, all) => {
      problems.weights = "";
      if (all) ready();
    },
    unfit: ({ version, reason, match }) => {
      const why = `weights ${version} are not used: ${reason}`;
      if (match) noMatches(why);
      else give("weights", why, Boolean(crew.version));
    },
    beat,
    failed: (reason) => give("page", `${reason}; reload the page`, false),
  });
}

function stop() {
  me.up_ms += Date.now() - me.since;
  me.since = 0;
  going.set(false);
  link.stop();
  crew.stop();
  marks.length = 0;
  draw();
}

/** Keeps to what was chosen, and to the manners. */
function steer() {
  if (!running()) return draw();
  const share = resting() ? 0 : settings.share / 100;
  if (share && !crew.share) ready();
  crew.share = share;
  draw();
}

function fail(about, reason) {
  problems[about] = reason;
  draw();
}

/** Says what is wrong, and gives all games back where it cannot go on. */
function give(about, reason, on) {
  if (!on && running()) stop();
  fail(about, reason);
}

/** Why this browser cannot play at all. */
const lacking = () => (typeof WebAssembly !== "object" ? "WebAssembly" : typeof Worker !== "function" ? "Web Workers" : "");

function choose(name, value) {
  const before = { ...settings };
  settings[name] = value;
  save(settings);
  if (running() && ["workers", "games", "gpu"].some((one) => settings[one] !== before[one])) employ();
  if (running() && ["workers", "games", "quality"].includes(name)) ready();
  if (running() && name === "run") {
    link.send({ tag: "Bye" });
    link.again("another run");
  }
  if (running() && ["name", "device"].includes(name)) link.again("another name");
  if (name === "run") see();
  steer();
}

// -- what there is to see

const board = new Board();
const chart = strengthChart();

function slider(name, { name: label, least, most, step, says }) {
  const shown = h("output", { for: name }, says(settings[name]));
  const input = h("input", { id: name, type: "range", min: least, max: most, step, value: settings[name] });
  input.addEventListener("input", () => show(shown, says(Number(input.value))));
  input.addEventListener("change", () => choose(name, Number(input.value)));
  return h("div", { class: "control" }, h("label", { for: name }, label), shown, input);
}

function check(name, label, disabled = false) {
  const input = h("input", { id: name, type: "checkbox", checked: settings[name], disabled });
  input.addEventListener("change", () => choose(name, input.checked));
  return h("label", { class: "check" }, input, label);
}

/** A field for a name; `none` is what an empty one says, where there was something before. */
function words(name, label, placeholder, none) {
  const input = h("input", { id: name, type: "text", maxlength: 32, value: settings[name], placeholder, autocomplete: "off" });
  input.addEventListener("change", () => choose(name, input.value.trim() || none));
  return h("div", { class: "control" }, h("label", { for: name }, label), input);
}

function build() {
  const runs = h("select", { id: "runs" });
  runs.addEventListener("change", () => choose("run", runs.value));
  const button = h("button", { id: "go", type: "button", class: "first large" }, "Start");
  button.addEventListener("click", () => (running() ? stop() : start()));
  $("main").replaceChildren(
    h("section", { class: "panel lead" }, h("div", {}, h("h1", { id: "title" }, "Help train a game AI"),
      h("p", { class: "muted" }, "Your browser plays practice games, and the network learns from those that pass a check. It uses CPU and battery, never your files. The first start downloads about 1 MB, for some networks 6 MB; it pauses on battery unless you change that.")),
    h("div", { class: "go" }, button, h("span", { id: "state", role: "status", "aria-live": "polite" }))),
    h("p", { id: "problem", class: "bad", role: "alert" }),
    h("div", { class: "halves" },
      h("section", { class: "panel", id: "playing" }, h("p", { class: "mine" }, h("b", { id: "mine" }), h("span", { id: "mine-more", class: "muted" })),
        h("h2", { id: "playing-title" }, "Game in progress"), h("div", { id: "board" }, h("p", { class: "empty" }, "Press Start to see it here"))),
      h("div", { class: "stack" }, chart.element,
        h("section", { class: "panel" }, h("h2", {}, "Run"), h("div", { id: "choice", class: "control", hidden: true }, h("label", { for: "runs" }, "Play for"), runs), h("p", { id: "elsewhere", class: "warn" }),
          h("div", { id: "run", class: "tiles" })),
        h("section", { class: "panel" }, words("name", "Public name (optional)", "none", "guest")))),
    h("details", { id: "advanced" }, h("summary", {}, "Advanced"), h("div", { id: "tiles", class: "tiles" }),
      h("section", { class: "panel" }, Object.entries(CONTROLS).map(([name, control]) => slider(name, control)),
        h("div", { class: "checks" }, check("battery", "Pause on battery"), check("hidden", "Pause while this tab is hidden"), check("gpu", "Use the GPU where possible")),
        words("device", "Device name", "my laptop", ""))));
  showPages("contribute");
  document.querySelector("header").append(themeButton());
}

const tile = (key, name, text, title = "") => h("div", { class: "tile", "data-tile": key, title }, h("span", {}, name), h("b", {}, text));

function draw() {
  const now = rates();
  const rest = resting();
  show($("go"), running() ? "Stop" : "Start");
  $("go").classList.toggle("first", !running());
  const [tone, state] = !running() ? ["", me.up_ms ? "Stopped" : "Not started"] : rest ? ["warn", `Paused: ${rest}`] : me.state === "welcome"
    ? ["good", crew.playing.length ? `Playing ${many(Math.min(crew.playing.length, settings.workers * settings.games), "game")}` : "Waiting for games"] : ["warn", me.state === "waiting" ? `${me.why}; retrying within ${Math.ceil(link.retry_ms / 1000)} s` : me.why];
  show($("state"), h("span", { class: `pill ${tone}` }, state));
  show($("link"), h("span", { class: `pill ${me.state === "welcome" ? "good" : running() ? "warn" : ""}` }, me.state === "welcome" ? me.name || "Connected" : running() ? "Away" : "Not connected"));
  show($("problem"), Object.values(problems).filter(Boolean).map((one) => h("span", {}, one)));
  const up_ms = me.up_ms + (running() ? Date.now() - me.since : 0);
  show($("mine"), many(me.games, "game"));
  show($("mine-more"), ` counted · ${link.unanswered || "none"} being checked · ${clock(up_ms / 1000)} in this tab`);
  show($("tiles"),
    tile("my samples", "My samples", whole(me.samples)), tile("in this tab", "In this tab", whole(crew?.totals.games ?? 0), "Finished since the page was loaded"), tile("refused", "Refused", whole(me.refused)),
    tile("games/s", "Games/s", count(now.games)), tile("simulations/s", "Simulations/s", count(now.simulations)), tile("evaluations/s", "Evaluations/s", count(now.evaluations)),
    tile("cores busy", "Cores busy", now.cpu.toFixed(1)), tile("backend", "Backend", { wasm: "WebAssembly", webgpu: "WebGPU", uniform: "no network" }[crew?.backend] ?? "–"));
  if (me.shown) {
    show($("playing-title"), "Game in progress ", h("span", { class: "muted" }, me.shown.match ? `evaluation match, version ${me.shown.match.join(" against ")}` : `${gameName(run.game)} #${me.shown.uid}`));
    if (board.view?.text !== me.shown.text) board.draw({ game: run.game, text: me.shown.text, before: me.before });
    if (!$("board").contains(board.element)) $("board").replaceChildren(board.element);
  }
  drawRun();
}

function drawRun() {
  const facts = run.facts;
  const mine = crew?.version ?? 0;
  const offered = facts?.runs ?? [];
  $("choice").hidden = offered.length < 2 && !settings.run;
  show($("runs"), h("option", { value: "" }, "Any run that needs games"), offered.map(({ run: name, game }) => h("option", { value: name }, `${name} · ${gameName(game)}`)));
  $("runs").value = offered.some(({ run: name }) => name === settings.run) ? settings.run : "";
  const away = facts && settings.run && !offered.some(({ run: name }) => name === settings.run);
  show($("elsewhere"), away ? `${settings.run} needs no volunteers right now; this tab plays for ${facts.run} meanwhile` : "");
  const title = facts?.game ? `Help train a ${gameName(facts.game)} AI` : "Help train a game AI";
  show($("title"), title);
  document.title = `${running() ? `${many(me.games, "game")}, ` : ""}${title} · azq`;
  show($("run"),
    tile("strength", facts ? MEASURES[facts.headline].title : "Strength", facts?.strength ?? "–"), tile("version", "Version", facts ? `v${facts.version}` : "–"),
    tile("mine", "Version in this tab", mine ? `v${mine}` : "–"), tile("games", "Games", facts ? count(facts.run_totals.games) : "–", "Of this run, volunteers' and others'"),
    tile("by volunteers", "By volunteers", facts ? count(facts.totals.ever.games) : "–", "In all runs"), tile("tabs now", "Tabs now", facts ? String(facts.tabs) : "–"));
}

/** What is known of the run that this tab plays for, or would. */
async function see() {
  const wanted = run.name || settings.run;
  try {
    run.facts = knownRun(await fetchPublic("", wanted).catch((error) => (wanted ? fetchPublic() : Promise.reject(error))));
    if (run.facts) chart.draw(run.facts);
    problems.figures = "";
  } catch (error) {
    problems.figures = running() && me.state !== "welcome" ? "" : error.message;
  }
  draw();
}

async function open() {
  if (runOfAddress()) save(Object.assign(settings, { run: runOfAddress() }));
  build();
  draw();
  see();
  setInterval(see, RUN_MS);
  if (lacking()) {
    $("go").disabled = true;
    return fail("page", `This browser lacks ${lacking()}; use a newer one`);
  }
  const games = await link.kept.open();
  left = games.at(-1)?.run ?? "";
  link.take(games);
  if (going.get()) start();
  else draw();
}

open();
addEventListener("online", () => link.again("the network is back"));
addEventListener("pagehide", () => running() && link.send({ tag: "Bye" }));
setInterval(() => {
  if (!running()) return;
  beat();
  draw();
}, 1000);
