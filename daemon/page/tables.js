// Tables from the daemon's answers: queues, ledger, matches, ratings. Each function gives the content of its panel.

import { h } from "../web/dom.js";
import { ago, count, fewGames, fixed, percent, signed, span, whole } from "../web/format.js";

const MATCHES_SHOWN = 14;
const WAITS_LONG_S = 60;

/** A table; a column that starts with `#` holds numbers. */
export function table(columns, rows) {
  const numbers = columns.map((name) => name.startsWith("#"));
  const side = (i) => (numbers[i] ? "number" : null);
  const cell = (value, i) => (value instanceof Element && value.tagName === "TD" ? value : h("td", { class: side(i) }, value));
  const head = columns.map((name, i) => h("th", { scope: "col", class: side(i) }, name.replace("#", "")));
  return h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, rows.map(({ key, cells }) => h("tr", { "data-key": key }, cells.map(cell))))));
}

/** A setting or a measured value in a cell. */
export const figure = (value) => (typeof value === "number" ? (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)))) : value === null ? "–" : String(value));

export const settingText = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : figure(value));

export const empty = (text) => h("p", { class: "empty" }, text);

export function queuesPanel(queues) {
  const rows = queues.map((one) => ({
    key: one.queue,
    cells: [one.queue, count(one.queued), count(one.leased),
      h("td", { class: `number ${one.slots ? "" : "bad"}` }, count(one.slots)), count(one.workers),
      h("td", { class: `number ${one.oldest_queued_s > WAITS_LONG_S ? "warn" : ""}` }, span(one.oldest_queued_s))],
  }));
  return [h("h2", {}, "Queues"), rows.length ? table(["Queue", "#Ready", "#Leased", "#Slots", "#Workers", "#Oldest job"], rows)
    : empty("No jobs waiting and no workers running")];
}

/** The two sums of the ledger, term by term. */
export function ledgerPanel(ledger) {
  const sum = (total, value, ...terms) => h("p", { class: "sum" }, h("b", { "data-count": total }, whole(value)), ` ${total} = `,
    terms.map(([name, term], i) => [i ? " + " : "", h("b", { "data-count": name }, whole(term)), ` ${name}`]));
  return [
    h("h2", {}, "Ledger ", h("span", { class: `pill ${ledger.balanced ? "good" : "bad"}`, id: "verdict" }, ledger.balanced ? "OK" : "Counts do not add up")),
    sum("opened", ledger.opened, ["finished", ledger.finished], ["open", ledger.open], ["abandoned", ledger.abandoned]),
    sum("finished", ledger.finished, ["inserted", ledger.inserted], ["in transit", ledger.in_transit]),
    h("p", { class: "muted" }, h("b", { "data-count": "duplicates" }, whole(ledger.duplicates_dropped)), " duplicates dropped"),
  ];
}

/** The processes that train one network together; nothing where one trains alone. */
export function ranksTable(ranks) {
  if (!ranks?.each.length) return [];
  const rows = ranks.each.map((one) => ({ key: `rank ${one.rank}`, cells: [one.rank,
    h("span", { class: `pill ${one.state === "trains" ? "good" : "bad"}` }, one.state.replace("_", " ")), one.host, one.device,
    one.micro_batch && one.micro_batch < one.rows ? `${one.rows} by ${one.micro_batch}` : one.rows, count(one.samples_per_s),
    fixed(1)(1e3 * one.batch_s), fixed(1)(1e3 * one.sync_s), `${whole(one.memory_bytes / 1e6)} MB`, `${fixed(1)(one.state_bytes / 1e6)} MB`, one.errors, one.reason] }));
  return [h("h2", {}, "Ranks ", h("span", { class: "muted" }, `efficiency ${fixed(2)(ranks.efficiency)}`)),
    table(["Rank", "State", "Host", "Device", "#Rows", "#Samples/s", "#Step, ms", "#Sync, ms", "#Memory", "#Holds", "#Errors", "Last error"], rows)];
}

export function arenaPanel({ matches }) {
  const rows = matches.slice(0, MATCHES_SHOWN).map((match, i) => ({
    key: `${match.finished_ms} ${i}`,
    cells: [match.first, h("td", {}, match.second, [match.progress, match.of_games && match.error].map((text) => text ? h("div", { class: "muted so-far" }, text) : null)),
      match.error && !match.of_games ? h("td", { class: "bad", colspan: 2 }, match.error)
        : [h("td", { class: "number" }, `${match.wins} / ${match.draws} / ${match.losses}`), h("td", { class: "number" }, match.seats === 1 ? `${whole(match.points)} – ${whole(match.second_points)}` : percent(match.share, 0))],
      count(match.num_simulations), ago(match.finished_ms)].flat(),
  }));
  return [h("h2", {}, "Matches"), rows.length ? table(["First", "Second", "#Win / draw / loss", "#Score", "#Simulations", "#Played"], rows)
    : empty("No matches yet; the first comes at about 0:20")];
}

export function ratingsPanel(ratings) {
  const interval = ({ low, high }) => (fewGames(low, high) ? "too few games" : low === high ? "–" : `${signed(low)} … ${signed(high)}`);
  const rows = ratings.slice(0, MATCHES_SHOWN).map((one) => ({
    key: one.player,
    cells: [one.player, signed(one.elo), interval(one), count(one.games), fixed(1)(one.score)],
  }));
  return [h("h2", {}, "Ratings"), rows.length ? table(["Player", "#Elo", "#95 % interval", "#Games", "#Points"], rows) : empty("No ratings yet")];
}

/** Mean scores of a game for one, which has no ratings. */
export function scoresPanel(scores) {
  const rows = scores.slice(0, MATCHES_SHOWN).map((one) => ({ key: one.player, cells: [one.player, whole(one.score), `${whole(one.low)} … ${whole(one.high)}`, count(one.games)] }));
  return [h("h2", {}, "Scores"), table(["Player", "#Mean score", "#95 % interval", "#Games"], rows)];
}

/** What keeps a run from learning, causes first; nothing where nothing is known against it. */
export function findingsPanel({ findings, note }) {
  if (!findings.length) return note ? [h("p", { class: "muted" }, note)] : [];
  const rows = findings.map((one) => ({ key: one.rule, cells: [one.rule, one.evidence, `${one.setting.key} = ${one.setting.value}`, String(one.setting.now), one.confidence] }));
  return [h("h2", {}, "Training problems ", h("span", { class: "muted" }, `${findings.length} found`)), table(["Rule", "Evidence", "Try", "Now", "Confidence"], rows), note ? h("p", { class: "muted" }, note) : ""];
}
