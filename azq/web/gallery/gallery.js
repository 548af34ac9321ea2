// The games that a site offers, each with a board, its rules and the way to play it.

import { call } from "../api.js";
import { Board } from "../board.js";
import { h, show } from "../dom.js";
import { themeButton } from "../frame.js";
import { RULES } from "../rules.js";

document.querySelector("header").append(themeButton());
try {
  const games = await call("/games.json");
  show(document.getElementById("games"), games.map(({ game, position }) => {
    const { title, rules } = RULES[game];
    return h("section", { class: "panel", "data-game": game }, h("h2", {}, title),
      h("a", { class: "preview", "aria-hidden": "true", tabindex: -1, href: `web/play/?site#run=${game}` }, preview(game, position)),
      h("ol", {}, rules.map((rule) => h("li", {}, rule))),
      h("a", { class: "button", href: `web/play/?site#run=${game}`, "aria-label": `Play ${title}` }, "Play"));
  }));
} catch (error) {
  document.getElementById("problem").textContent = `The list of games could not be read (${error.message}); reload the page.`;
}

function preview(game, text) {
  const board = new Board();
  board.draw({ game, text, seat: 0, names: ["You", "Player 2", "Player 3", "Player 4"] });
  return board.element;
}
