// The play page: a person at the board against a run's networks, from the first ply to the analysis.

import { Away, Refused, takeToken } from "../api.js";
import { Board } from "../board.js";
import { seatName, words } from "../boards/words.js";
import { loadCore } from "../core.js";
import { h, show } from "../dom.js";
import { signed } from "../format.js";
import { askForToken, showPages, themeButton } from "../frame.js";
import { Replay, thoughts } from "../replay.js";
import { RULES } from "../rules.js";
import { findSource } from "./source.js";
import { Table } from "./table.js";

const $ = (id) => document.getElementById(id);
const BUDGETS = [16, 64, 200, 800];  // simulations, where the run has no levels yet
const FIRST_LEVEL = 3;  // of a site's ten, where a person begins
const ROLL_MS = 400;
const SHOWN = 8;  // thoughts
const AGAIN_MS = [500, 1000, 2000, 4000];  // until the daemon is asked again; the last for as long as it takes

const page = { board: null, core: null, source: null, run: null, rules: null, opponents: [], opponent: null, table: null, seat: 0, turn: 0, hint: null, advice: new Map(), replay: null, away: "" };

// --- the address: #run=..&level=..&seat=..&moves=.. (base 36, joined by dots); what a shared link says

function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const moves = (query.get("moves") ?? "").split(".").filter(Boolean).map((move) => parseInt(move, 36));
  const run = query.get("run") ?? new URLSearchParams(location.search).get("run") ?? document.documentElement.dataset.game;
  return { run, level: query.get("level"), seat: Number(query.get("seat") ?? 0), moves };
}

function address() {
  const query = new URLSearchParams({ run: page.run.name, level: $("level").value, seat: page.seat });
  if (!hidden()) query.set("moves", page.table.actions().map((action) => action.toString(36)).join("."));
  return `#${query}`;
}

/** Whether the plies so far would show the person, and readers of the link, what must stay hidden. */
const hidden = () => page.table.rules.hasHidden && !page.table.over;

// --- a game

function begin(actions = [], seat = Number($("seat").value)) {
  Object.assign(page, { seat, hint: null, advice: new Map() });
  closeAnalysis();
  page.table = new Table(page.rules, actions);
  advance();
}

/** Plays on until the person is to move, or the game is over; a new start ends what ran before. */
async function advance() {
  const turn = ++page.turn;
  const gone = () => turn !== page.turn;
  page.hint = null;
  problem("");
  try {
    while (!page.table.over) {
      draw();
      if (page.table.chance) {
        if (page.table.rules.name === "backgammon") await new Promise((resolve) => setTimeout(resolve, ROLL_MS));
        if (gone()) return;
        page.table.roll();
      } else if (page.table.actor === page.seat) {
        if ($("thinks").checked) await advise();
        return;
      } else {
        const ply = page.table.plies.length;
        const answer = await guarded(() => page.opponent.moves([page.table.asked()], strength()));
        if (gone() || ply !== page.table.plies.length) return;
        page.table.play(answer.moves[0].action);
      }
    }
    draw();
  } catch (error) {
    if (!gone()) problem(error.message);
  }
}

/** What the level chooser says. */
function strength() {
  const [kind, number] = $("level").value.split(":");
  return kind === "elo" ? { level: Number(number) } : { weights: "latest", num_simulations: Number(number) };
}

function act(action) {
  if (page.table.actor !== page.seat) return;
  page.table.play(action);
  advance();
}

function takeBack() {
  if (page.table.takeBack(page.seat)) advance();
}

/** The network's opinion of the position on the board, asked once a ply. */
async function advise() {
  const { table, turn, advice, opponent } = page;
  const ply = table.actions().join();
  if (!advice.has(ply)) {
    const asked = guarded(() => opponent.moves([table.asked()], opponent.advice)).then(({ moves: [answer] }) => { asked.answer = answer; });
    advice.set(ply, asked);
    asked.catch(() => advice.delete(ply));
  }
  await advice.get(ply);
  if (turn === page.turn) draw();
}

async function hint() {
  if (page.table.actor !== page.seat) return;
  const { turn } = page;
  await advise();
  if (turn !== page.turn) return;
  page.hint = page.advice.get(page.table.actions().join()).answer.candidates[0].action;
  draw();
}

// --- what is seen

function draw() {
  const { table, seat } = page;
  const mine = table.actor === seat;
  const actions = mine ? table.legal() : [];
  const { name } = table.rules;
  const last = table.plies.findLast(({ player }) => player >= 0);
  const shown = name === "2048" ? table.plies.at(-1) : last;
  page.board.draw({
    game: name, text: table.text, before: shown?.before ?? "", last, seat, actor: table.actor, actions, hint: page.hint, notice: page.away,
    names: playerNames(), returns: table.over ? table.returns : null,
  });
  document.title = `${$("table").querySelector(".turn").textContent} · ${$("title").textContent} · azq`;
  show($("played"), table.plies.filter(open).map((ply) => h("li", { class: "move" }, words(name, ply.text).replace("column ", ""))));
  $("played").scrollTop = $("played").scrollHeight;
  $("back").disabled = !table.plies.some(({ player }) => player === seat);
  $("back").textContent = mine && name === "backgammon" && table.plies.at(-1)?.player === seat ? "Undo this die" : "Take back";
  $("hint").disabled = !mine;
  $("share").disabled = hidden();
  $("analyse").hidden = !table.over;
  drawThoughts();
  history.replaceState(null, "", address());
}

/** Dealt cards stay out of the list of moves; dice are in it. */
const open = ({ player }) => player >= 0 || !page.table.rules.hasHidden;

const playerNames = () => Array.from({ length: page.rules.numPlayers }, (_, player) => (player === page.seat ? "You" : page.rules.numPlayers === 2 ? "Opponent" : seatName(page.rules.name, player)));

function drawThoughts() {
  const advice = page.advice.get(page.table.actions().join())?.answer;
  const wanted = advice && ($("thinks").checked || page.hint !== null);
  const thinking = !advice && $("thinks").checked && page.table.actor === page.seat;
  const { name } = page.table.rules;
  const line = advice?.principal_variation_texts.map((text) => words(name, text)).join(" ");
  show($("thoughts"), wanted ? [h("h2", {}, `What the network thinks: ${worth(advice.value)} for you`), h("p", { class: "muted" }, `It would play ${line}. Bars: share of its search; numbers: expected result, −1 loses, +1 wins.`),
    thoughts(name, advice.candidates.slice(0, SHOWN), advice.candidates[0].action)] : thinking ? h("p", { class: "muted" }, "The network is looking at the position…") : []);
}

const worth = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

const problem = (text) => { $("problem").textContent = text; };

/** The answer to a question that changes nothing: asked with a token where one is needed, and while the turn lasts again until the daemon can answer. */
async function guarded(ask) {
  const { turn } = page;
  for (let tries = 0; ; tries++) {
    try {
      const answer = await ask();
      if (page.away) tellAway("", "");
      return answer;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) await askForToken(error);
      else if (error instanceof Away || error.status === 503) {
        tellAway("Connection lost. Trying again…", error instanceof Away ? "" : error.message);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]));
      } else throw error;
      if (turn !== page.turn) throw new Error("");  // somebody else asks now, and says what is wrong
    }
  }
}

function tellAway(text, reason) {
  page.away = text;
  problem(reason);
  if (page.table) draw();
  else $("loading").textContent = text || "Loading…";
}

// --- afterwards

function closeAnalysis() {
  page.replay?.leave();
  page.replay = null;
  show($("analysis"));
}

/** The finished game as the viewer shows recorded ones: the network looks at every position in which somebody chose. */
async function analyse() {
  closeAnalysis();
  const { table } = page;
  const plies = table.plies.map((ply, number) => ({ ...ply, number }));
  const chosen = plies.filter(({ player }) => player >= 0);
  $("analyse").disabled = true;
  try {
    const answer = await guarded(() => page.opponent.moves(chosen.map(({ number }) => table.asked(number)), page.opponent.advice));
    const seen = new Map(chosen.map(({ number }, i) => [number, answer.moves[i]]));
    page.replay = new Replay();
    show($("analysis"), page.replay.element);
    page.replay.open(view(table, plies, seen, answer.weight_version));
    page.replay.element.scrollIntoView({ behavior: "smooth" });
  } catch (error) {
    problem(error.message);
  } finally {
    $("analyse").disabled = false;
  }
}

function view(table, plies, seen, version) {
  const players = table.returns.length;
  const seats = [...table.returns.keys()];
  return {
    game: table.rules.name, players, returns: table.returns, final_position: table.text,
    plies: plies.map(({ action, text, player, before, number }) => {
      const answer = seen.get(number);
      const values = answer && seats.map((seat) => (seat === player ? answer.value : players === 2 ? -answer.value : null));
      return { position: before, player, action, text, simulations: answer ? page.opponent.advice.num_simulations : 0, weight_version: version, values: values ?? null, targets: answer?.candidates.filter(({ share }) => share > 0).slice(0, SHOWN) ?? [] };
    }),
  };
}

async function share() {
  const link = location.origin + location.pathname + location.search + address();
  await navigator.clipboard?.writeText(link).catch(() => {});  // not on plain http beyond this machine; the address bar has it
  $("share").textContent = "Link copied";
  setTimeout(() => { $("share").textContent = "Link"; }, 2000);
}

// --- which run, how strong, which seat

async function openRun(name, wanted) {
  page.run = page.source.runs.find((run) => run.name === name) ?? page.source.runs[0];
  $("runs").value = page.run.name;
  const { title, rules } = RULES[page.run.sections.run.game] ?? { title: page.run.sections.run.game, rules: [] };
  $("title").textContent = title;
  show($("rules"), h("summary", {}, `${title}: the rules`), h("ol", {}, rules.map((rule) => h("li", {}, rule))));
  $("rules").hidden = !rules.length;
  const settings = page.run.sections.run;
  if (!page.core.games().includes(settings.game)) throw new Error(`the rules of ${settings.game} are not in this page; play it with \`azq play\``);
  page.rules = page.core.game(settings.game, settings.params);
  page.opponents = await page.source.opponents(page.run.name);
  if (!page.opponents.length) throw new Error(`run ${page.run.name} has no networks for browsers yet; come back when it has learnt something`);
  show($("where"), page.opponents.map(({ name: value, text }) => h("option", { value }, text)));
  $("where").parentElement.hidden = page.opponents.length < 2;
  const players = page.rules.numPlayers;
  show($("seat"), Array.from({ length: players }, (_, seat) => h("option", { value: seat }, players > 2 ? seatName(settings.game, seat) : `${seatName(settings.game, seat)}${seat || page.rules.hasChance ? "" : ", first"}`)));
  $("seat").value = String(wanted.seat < players ? wanted.seat : 0);
  $("seat").parentElement.hidden = players === 1;
  $("level").previousSibling.textContent = players === 1 ? "Hints by " : "Opponent ";
  await openOpponent(wanted.level);
}

/** Who was chosen, with the levels that he has; as strong as before where there was somebody. */
async function openOpponent(level) {
  page.opponent?.close?.();
  page.opponent = page.opponents.find(({ name }) => name === $("where").value).open();
  const levels = await guarded(() => page.opponent.levels());
  const { site } = page.source;
  const options = levels.map(({ elo, weight_version, num_simulations, measured }, i) => [`elo:${Math.round(elo)}`, site
    ? `Level ${i + 1} · ${num_simulations} simulations${i && page.run.levels[i] ? ` · ${signed(page.run.levels[i].elo)} Elo` : ""}` : `${measured ? "" : "≈ "}${Math.round(elo)} Elo · v${weight_version}, ${num_simulations} simulations`]);
  show($("level"), options.map(([value, text]) => h("option", { value }, text)),
    (site ? [] : BUDGETS).map((budget) => h("option", { value: `simulations:${budget}` }, `Newest weights, ${budget} simulations`)));
  $("level").value = nearest(level, options) ?? (site ? options[FIRST_LEVEL][0] : "simulations:200");
}

/** The choice that a link asks for, also by an Elo between two levels. */
function nearest(wanted, options) {
  if (wanted?.startsWith("simulations:")) return BUDGETS.includes(Number(wanted.slice(12))) ? wanted : null;
  const elo = Number(wanted?.replace("elo:", ""));
  if (!wanted || Number.isNaN(elo) || !options.length) return null;
  const far = ([value]) => Math.abs(Number(value.slice(4)) - elo);
  return options.reduce((best, one) => (far(one) < far(best) ? one : best))[0];
}

async function start() {
  const wanted = readAddress();
  const core = page.core ?? guarded(() => loadCore(new URL("../azq.wasm", import.meta.url)));  // loads while the rest is requested
  Promise.resolve(core).catch(() => {});
  page.source ??= await findSource(guarded);
  if (page.source.gateway) showPages("play");
  if (!page.source.runs.length) throw new Error(page.source.gateway ? "no run wants volunteers at the moment, so there is no opponent" : "there are no runs yet; `azq up` starts one");
  show($("runs"), page.source.runs.map((run) => h("option", { value: run.name }, page.source.site ? RULES[run.name].title : run.name)));
  if (page.source.site) $("runs").previousSibling.textContent = "Game ";
  const { start: text, sections } = page.source.runs.find(({ name }) => name === wanted.run) ?? {};
  if (text && !page.table) {
    $("runs").value = wanted.run;
    page.board.draw({ game: sections.run.game, text });
  }
  page.core = await core;
  await openRun(wanted.run, wanted);
  document.querySelector(".play").classList.remove("waiting");
  try {
    begin(wanted.moves);
  } catch (error) {
    begin();
    problem(`the link's moves are not those of a game (${error.message}); this is a new one`);
  }
  if (wanted.run && wanted.run !== page.run.name) problem(`there is no run ${wanted.run} to play against; this is ${page.run.name}`);
}

page.board = new Board((action) => act(action));
$("table").append(page.board.element);
const telling = (work) => (event) => Promise.resolve(event).then(work).catch((error) => problem(error.message));

$("settings").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
$("back").addEventListener("click", takeBack);
$("hint").addEventListener("click", telling(hint));
$("thinks").addEventListener("change", telling(() => ($("thinks").checked && page.table.actor === page.seat ? advise() : draw())));
$("share").addEventListener("click", share);
$("analyse").addEventListener("click", analyse);
$("level").addEventListener("change", () => page.table && advance());
$("where").addEventListener("change", telling(async () => { await openOpponent($("level").value); page.advice = new Map(); advance(); }));
$("runs").addEventListener("change", telling(async () => {
  if (page.source.site) return location.assign(`../${$("runs").value}/`);
  await openRun($("runs").value, readAddress()); begin(); }));
window.addEventListener("hashchange", telling(() => { takeToken(); return start(); }));
document.querySelector("header").append(themeButton());
takeToken();
telling(start)().finally(() => ($("loading").textContent = ""));
