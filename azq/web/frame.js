// What every page has around its content: colours that a person chose, and the question for the token.

import { h } from "./dom.js";
import { token } from "./api.js";

const KEY = "azq-theme";
const PAGES = ["contribute", "progress", "play"];
const THEMES = [["", "as the system"], ["light", "light"], ["dark", "dark"]];

/** The button that goes through the colours; what it was set to last holds on all pages. */
export function themeButton() {
  const button = h("button", { id: "theme", type: "button", class: "quiet" }, "◐");
  const set = (name) => {
    const [theme, text] = THEMES.find(([one]) => one === name) ?? THEMES[0];
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
    button.setAttribute("aria-label", `colours: ${text}`);
    button.title = `colours: ${text}`;
  };
  button.addEventListener("click", () => {
    const now = THEMES.findIndex(([theme]) => theme === document.documentElement.dataset.theme);
    set(THEMES[(now + 1) % THEMES.length][0]);
  });
  set(localStorage.getItem(KEY) ?? "");
  return button;
}

/** Shows the ways to the pages for everybody; `current` is the folder of this one. */
export function showPages(current) {
  if (document.querySelector(".pages")) return;
  const links = PAGES.map((one) => h("a", { href: `../${one}/`, "aria-current": one === current && "page" }, one));
  document.querySelector(".mark").after(h("nav", { class: "pages", "aria-label": "pages" }, links));
}

let asking = null;

/** Asks for a token until there is one; `error` is the refusal that made it necessary. All who ask meanwhile wait for the same answer. */
export function askForToken(error) {
  asking ??= new Promise((resolve) => {
    const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
    const dialog = h("dialog", { id: "ask", "aria-labelledby": "ask-title" }, h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, "This daemon asks for a token"), h("p", {}, "It is kept for this tab only and sent as a bearer token."),
      h("label", {}, "token ", field), h("p", { id: "ask-problem", class: "bad", role: "alert" }, token.get() ? error.message : ""),
      h("menu", {}, h("button", { type: "submit", class: "first" }, "go on"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      token.set(field.value.trim());
      dialog.remove();
      asking = null;
      resolve();
    }, { once: true });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
