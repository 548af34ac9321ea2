// The games that a site offers, each with a board, its rules and the way to play it.

import { call } from "../api.js";
import { board } from "../board.js";
import { h, show } from "../dom.js";
import { themeButton } from "../frame.js";
import { RULES } from "../rules.js";

document.querySelector("header").append(themeButton());
try {
  const games = await call("/games.json");
  show(document.getElementById("games"), games.map(({ game, position }) => {
    const { title, rules } = RULES[game];
    return h("section", { class: "panel", "data-game": game }, h("h2", {}, title),
      h("div", { class: "preview", "aria-hidden": "true" }, board(position)),
      h("ol", {}, rules.map((rule) => h("li", {}, rule))),
      h("a", { class: "button", href: `web/play/?site#run=${game}`, "aria-label": `Play ${title}` }, "Play"));
  }));
} catch (error) {
  document.getElementById("problem").textContent = `The list of games could not be read (${error.message}); reload the page.`;
}
