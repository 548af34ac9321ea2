// What every page has around its content: colours that a person chose, and the question for the token.

import { h } from "./dom.js";
import { token, tokenOfAnotherTab } from "./api.js";

const KEY = "azq-theme";
const PAGES = ["contribute", "progress", "play"];
const THEMES = [["", "System"], ["light", "Light"], ["dark", "Dark"]];

/** The button that goes through the colours; what it was set to last holds on all pages. */
export function themeButton() {
  const button = h("button", { id: "theme", type: "button", class: "quiet" }, "◐");
  const set = (name) => {
    const [theme, text] = THEMES.find(([one]) => one === name) ?? THEMES[0];
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
    button.setAttribute("aria-label", `Colours: ${text}`);
    button.title = `Colours: ${text}`;
  };
  button.addEventListener("click", () => {
    const now = THEMES.findIndex(([theme]) => theme === document.documentElement.dataset.theme);
    set(THEMES[(now + 1) % THEMES.length][0]);
  });
  set(localStorage.getItem(KEY) ?? "");
  return button;
}

/** Shows links to the public pages; `current` is the folder of this one. */
export function showPages(current) {
  if (document.querySelector(".pages")) return;
  const links = PAGES.map((one) => h("a", { href: `../${one}/`, "aria-current": one === current && "page" }, one[0].toUpperCase() + one.slice(1)));
  document.querySelector(".mark").after(h("nav", { class: "pages", "aria-label": "pages" }, links));
}

let asking = null;

/** Takes the token from another tab, else asks for one; `error` is the refusal that made it necessary. All who ask meanwhile wait for the same answer. */
export function askForToken(error) {
  asking ??= tokenOfAnotherTab().then((known) => {
    if (!known) return fromPerson(error);
    token.set(known);
  }).finally(() => (asking = null));
  return asking;
}

function fromPerson(error) {
  return new Promise((resolve) => {
    const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
    const dialog = h("dialog", { id: "ask", "aria-labelledby": "ask-title" }, h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, "Sign in"), h("p", {}, "Paste the access token; `azq up` prints a link that contains it, or run `cat runs/.token`. It is kept while a tab of azq is open."),
      h("label", {}, "Token ", field), h("p", { id: "ask-problem", class: "bad", role: "alert" }, token.get() ? error.message : ""),
      h("menu", {}, h("button", { type: "submit", class: "first" }, "Sign in"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      token.set(field.value.trim());
      dialog.remove();
      resolve();
    }, { once: true });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Whether a person agrees to what is done only on a second thought; with `field` what was entered there, or null. */
export function agreed(title, text, verb, field = null) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "agree-title" }, h("form", { method: "dialog" }, h("h2", { id: "agree-title" }, title), h("p", {}, text), field && h("label", {}, field.getAttribute("aria-label"), field),
      h("menu", {}, h("button", { type: "submit", value: "", formnovalidate: true }, "Cancel"), h("button", { type: "submit", value: "yes", class: "first" }, verb))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (field?.value ?? true) : null);
    }, { once: true });
    document.body.append(dialog);
    dialog.showModal();
  });
}
