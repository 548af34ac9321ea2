// What people read of moves and players: the core's texts in the words of each game.

import { RULES } from "../rules.js";

export const ANIMALS = { Sk: "skunk", Pa: "parrot", Ka: "kangaroo", Mo: "monkey", Ch: "chameleon", Se: "seal", Ze: "zebra", Gi: "giraffe", Sn: "snake", Cr: "crocodile", Hi: "hippo", Li: "lion" };  // by strength, 1 to 12
export const SUITS = { S: "♠", H: "♥", D: "♦", C: "♣" };
export const letter = (column) => String.fromCharCode(97 + column);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The colour or the number that a player goes by. */
export const seatName = (game, player) => (player < 0 ? "Chance" : RULES[game]?.seats?.[player] ?? `Player ${player + 1}`);

/** A playing card: TS is 10♠. */
export const cardName = (text) => `${text[0] === "T" ? "10" : text[0]}${SUITS[text[1]]}`;

const WORDS = {
  connect_four: (text) => text.replace(/^[xo](\d+)$/, (_, column) => `column ${Number(column) + 1}`),
  tic_tac_toe: (text) => text.replace(/^[xo]\((\d+),(\d+)\)$/, (_, row, column) => `${letter(Number(column))}${Number(row) + 1}`),
  backgammon: (text) => text.replace(/^[xo] /, "").replace(/^rolls (\d)(\d)$/, "rolls $1-$2").replace("passes", "cannot move"),
  "2048": (text) => text.replace(/^([a-z]\d)=(\d+)$/, "$2 at $1"),
  blob: (text) => text.replace(/\b[2-9TJQKA][SHDC]\b/, cardName).replace(/^trump ([SHDC])$/, (_, suit) => `trump ${SUITS[suit]}`),
  beasty_bar: (text) => capital(text.replace(/ jumps (\d)/, ", jumps $1").replace(/ at (\d)/, (_, at) => `, aims at place ${Number(at) + 1}`).replace(" in vain", " (no effect)")),
};

/** A move as people read it. */
export const words = (game, text) => WORDS[game]?.(text) ?? text;

const BACKGAMMON = { 2: "a gammon", 3: "a backgammon" };

/** How a finished game went for the player who looks, or for all of them without one. */
export function verdict(view) {
  const { game, text, returns } = view;
  const how = RULES[game]?.won ?? BACKGAMMON[/wins (\d)$/m.exec(text)?.[1]];
  const result = outcome(view);
  return how && new Set(returns).size > 1 ? `${result}: ${how}` : result;
}

function outcome({ game, returns, seat = null }) {
  if (returns.length === 1) return "Game over";
  const best = Math.max(...returns);
  const winners = [...returns.keys()].filter((player) => returns[player] === best);
  if (winners.length === returns.length) return "Draw";
  if (seat === null) return `${winners.map((player) => seatName(game, player)).join(" and ")} ${winners.length > 1 ? "win" : "wins"}`;
  return returns[seat] < best ? "You lose" : winners.length === 1 ? "You win" : "You share first place";
}
