// Games of cards: Blob with its trick and trump, Beasty Bar with its queue. Hands of others are backs, unless the game is only watched.

import { h } from "../dom.js";
import { place } from "./places.js";
import { ANIMALS, SUITS, capital, cardName, words } from "./words.js";

const FACES = { Sk: "🦨", Pa: "🦜", Ka: "🦘", Mo: "🐒", Ch: "🦎", Se: "🦭", Ze: "🦓", Gi: "🦒", Sn: "🐍", Cr: "🐊", Hi: "🦛", Li: "🦁" };
const CODES = Object.fromEntries(Object.entries(ANIMALS).map(([code, name]) => [name, code]));
const STRENGTH = Object.fromEntries(Object.keys(ANIMALS).map((code, i) => [code, i + 1]));

export const isBlob = (text) => /^c\d+ t\S+ d\d/.test(text);
export const isBeastyBar = (text) => /^queue /.test(text);
const isCard = (text) => /^[2-9TJQKA][SHDC]$/.test(text);

/** A card; with `key` it is one of the hand that may be played, and a place for the cursor. */
function card(view, content, label, look, { key = null, does, motion = null } = {}) {
  if (key === null || view.still) return h("span", { class: `card ${look}`, role: "img", "aria-label": label, "data-motion": motion }, content);
  return h("button", { type: "button", ...place(view, key, label, does, `card ${look}`) }, content);
}

const back = () => h("span", { class: "card back", role: "img", "aria-label": "hidden card" });
const seen = ({ seat, returns }, player) => seat === null || seat === undefined || Boolean(returns) || seat === player;
const whose = ({ seat, names }, player) => (player === seat ? "Your" : `${names[player]}'s`);

/** A player's cards with what is known of the player. */
function hand(view, player, moves, facts, cards) {
  return h("section", { class: `hand${moves ? " to-move" : ""}${player === view.seat ? " own" : ""}`, "data-player": player },
    h("p", { class: "who" }, h("span", { class: `owner p${player}`, "aria-hidden": "true" }), h("b", {}, view.names[player]), h("span", { class: "muted" }, facts)), h("div", { class: "fan" }, cards));
}

// --- Blob

function playing(view, text, options = {}) {
  return card(view, [h("b", {}, text[0] === "T" ? "10" : text[0]), h("i", {}, SUITS[text[1]])], cardName(text), "HD".includes(text[1]) ? "playing red" : "playing", options);
}

/** {cards, trump, dealer, players: [{moves, facts, cards}], trick: [text]} of a position's text. */
function parseBlob(text) {
  const [head, ...lines] = text.split("\n");
  const [, cards, trump, dealer] = /^c(\S+) t(\S+) d(\d+)/.exec(head) ?? [];
  const players = lines.flatMap((line) => {
    const match = /^(>)? +\d+: bid (\S+), took (\d+), total (-?\d+) \| ?(.*)$/.exec(line);
    return match ? [{ moves: Boolean(match[1]), bid: match[2], took: match[3], total: match[4], cards: match[5].split(" ").filter(Boolean) }] : [];
  });
  return { cards, trump, dealer: Number(dealer), players, trick: /^trick: ?(.*)$/m.exec(text)?.[1].split(" ").filter(Boolean) ?? [] };
}

export function drawBlob(view) {
  const { text, before = "", last, actions = [] } = view;
  const { trump, dealer, players, trick } = parseBlob(text);
  const mover = players.findIndex(({ moves }) => moves);
  const complete = !trick.length && last && isCard(last.text) && before ? [...parseBlob(before).trick, last.text] : [];
  const shown = complete.length ? complete : trick;
  const first = complete.length ? last.player + 1 : mover - trick.length;  // the player who led, but for whole turns of the table
  const hands = players.map(({ moves, bid, took, total, cards }, player) => {
    const facts = [bid === "-" ? "no bid yet" : `bid ${bid}, took ${took}`, `${total} points`, player === dealer && "dealer"].filter(Boolean).join(" · ");
    return hand(view, player, moves && !view.returns, facts, cards.map((name) => (!seen(view, player) ? back()
      : playing(view, name, player === view.seat ? { key: name, does: actions.find((action) => action.text === name) } : {}))));
  });
  return h("div", { class: "position cards", role: "group", "aria-label": "table" }, hands.filter((_, player) => player !== view.seat),
    h("section", { class: "middle", "data-drop": "" },
      h("div", {}, h("p", { class: "muted" }, complete.length && mover >= 0 ? `${view.names[mover]} took the trick` : "Trick"),
        h("div", { class: "fan" }, shown.map((name, i) => h("figure", {}, playing(view, name, { motion: i === shown.length - 1 ? "pop" : null }), h("figcaption", { class: "muted" }, view.names[(((first + i) % players.length) + players.length) % players.length]))))),
      h("div", {}, h("p", { class: "muted" }, "Trump"), h("span", { class: `trump ${"HD".includes(trump) ? "red" : ""}` }, SUITS[trump] ?? "none"))),
    hands[view.seat] ?? "");
}

// --- Beasty Bar

const animals = (cards) => cards.match(/[A-Z][a-z]\d?/g) ?? [];
const lineOf = (text, name) => new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1] ?? "";

function beast(view, name, player, options = {}) {
  const code = name.slice(0, 2);
  const label = `${STRENGTH[code]} ${ANIMALS[code]}, ${whose(view, player).toLowerCase().replace("your", "yours")}`;
  return card(view, [h("b", {}, STRENGTH[code]), " ", h("span", { class: "face", "aria-hidden": "true" }, FACES[code]), h("small", {}, ANIMALS[code])], label, `beast p${player}`, options);
}

/** What a card of the hand does: its only action, or a choice among several. */
function playable(actions, code) {
  const options = actions.filter(({ text }) => CODES[text.split(" ")[0]] === code);
  return options.length === 1 ? { action: options[0].action } : options.length ? { from: code, hints: options.map(({ action }) => action) } : {};
}

export function drawBeastyBar(view) {
  const { text, actions = [], last } = view;
  const queue = animals(lineOf(text, "queue"));
  const hands = [...text.matchAll(/^player (\d+) hand (\S+) pile (\S+)$/gm)].map(([, number, cards, pile]) => {
    const player = Number(number);
    return hand(view, player, lineOf(text, "plays") === number, `${animals(pile).length} cards to draw`, animals(cards).map((name) => (seen(view, player)
      ? beast(view, name, player, player === view.seat ? { key: name, does: withHint(view, playable(actions, name)) } : {}) : back())));
  });
  const points = lineOf(text, "score").split(" ");
  const heap = (name, word) => lineOf(text, name).split(" ").map((cards, player) => h("section", { class: "heap" }, h("p", {}, `${whose(view, player)} ${word(player)}`),
    h("div", { class: "fan small" }, animals(cards).map((animal) => beast(view, animal, player)))));
  const played = last && CODES[last.text.split(" ")[0]];
  return h("div", { class: "position cards", role: "group", "aria-label": "table" }, hands.filter((_, player) => player !== view.seat),
    h("section", { class: "middle queue", "data-drop": "" }, h("div", {}, h("p", { class: "muted" }, "Queue, front on the left: at five, two enter the bar and the last is thrown out"),
      h("div", { class: "fan" }, queue.map((name) => beast(view, name, Number(name[2]), { motion: name === `${played}${last?.player}` ? "pop" : null })), Array.from({ length: 5 - queue.length }, () => h("span", { class: "card beast slot" }))))),
    h("div", { class: "heaps" }, heap("bar", (player) => `bar: ${points[player]} points`), heap("out", () => "discard")), hands[view.seat] ?? "");
}

const withHint = ({ hint }, does) => (does.hints ? { ...does, hints: does.hints.find((action) => action === hint) ?? null } : does);

// --- buttons

export const blobButtons = ({ actions }) => actions.filter(({ text }) => !isCard(text)).map((action) => ({ ...action, text: capital(words("blob", action.text)) }));

/** The choices that the chosen animal has. */
export function beastyBarButtons({ actions, from, text }) {
  const queue = animals(lineOf(text, "queue"));
  return actions.filter((action) => CODES[action.text.split(" ")[0]] === from && playable(actions, from).from).map(({ action, text: move }) => ({
    action, text: capital(words("beasty_bar", move.replace(/ at (\d)/, (_, at) => (queue[at] ? ` removes the ${ANIMALS[queue[at].slice(0, 2)]} in place ${Number(at) + 1}` : ` removes ${at}`)))) }));
}
