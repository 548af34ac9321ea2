// The games that a site offers, each with a board, its rules and the way to play it.

import { call } from "../api.js";
import { Board } from "../board.js";
import { h, show } from "../dom.js";
import { percent, whole } from "../format.js";
import { themeButton } from "../frame.js";
import { RULES } from "../rules.js";

const tell = (text) => { document.getElementById("problem").textContent = text; };

document.querySelector("header").append(themeButton());
let games;
while (!(games = await call("/games.json").catch(() => tell("The list of games is out of reach. Trying again…")))) await new Promise((resolve) => setTimeout(resolve, 2000));
tell("");
show(document.getElementById("games"), games.map(({ game, position, measured, levels }) => {
  const { title, rules } = RULES[game];
  return h("section", { class: "panel", "data-game": game }, h("h2", {}, title),
    h("a", { class: "preview", "aria-hidden": "true", tabindex: -1, href: `play/${game}/` }, preview(game, position)),
    h("ol", {}, rules.map((rule) => h("li", {}, rule))),
    levels.length || measured ? h("p", { class: "muted" }, levels.length ? spread(levels) : strength(measured)) : "",
    h("a", { class: "button", href: `play/${game}/`, "aria-label": `Play ${title}` }, "Play"));
}));

function preview(game, text) {
  const board = new Board();
  board.draw({ game, text, seat: 0, names: ["You", "Player 2", "Player 3", "Player 4"] });
  return board.element;
}

/** How far the highest level is above the first, by games of the levels against each other. */
function spread(levels) {
  const { elo, elo_95 } = levels.at(-1);
  return `Measured: level ${levels.length} is ${whole(elo)} ± ${elo_95} Elo above level 1, by ${whole(levels.reduce((sum, { games }) => sum + games, 0) / 2)} games of levels against each other.`;
}

/** What a shipped network's card says of its strongest opponent that it did not lose to. */
function strength({ opponent, share, games, num_simulations }) {
  const [kind, playouts] = opponent.split(":");
  const name = { random: "random moves", rule: "a rule of thumb", pubeval: "Pubeval", uct: "plain tree search", pimc: "search over sampled hands" }[kind] ?? opponent;
  return `Measured: ${percent(share, 0)} of the points in ${games} games against ${name}${playouts ? ` with ${playouts} playouts a move` : ""}, looking at ${num_simulations} positions a move.`;
}
