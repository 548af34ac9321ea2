// A recorded simulation to pull plugs in: a pull goes on with what became of the same course after that fault.

import { h, show } from "../dom.js";
import { themeButton } from "../frame.js";

const STATES = { ".": "works", x: "dead", s: "waits", z: "hangs", d: "away", f: "full" };
const { names, moments, plugs, courses } = await (await fetch("plug.json")).json();
const part = (id) => document.getElementById(id);
let second = 0, pulled = "", from = 0, runs = true;

function button(text, press) {
  const element = h("button", { type: "button" }, text);
  element.addEventListener("click", () => press(element));
  return element;
}

function pull(plug, title) {
  from = second = moments.find((moment) => moment >= second) ?? moments[0];
  pulled = plug;
  part("happened").textContent = `${title}, at second ${second}.`;
  draw();
}

function draw() {
  const [states, begun, open, way, disk, abandoned, lost, twice] = pulled ? courses[`${pulled} ${from}`][second - from] : courses[""][second];
  show(part("processes"), names.map((name, place) => h("li", { class: STATES[states[place]] }, h("b", {}, name), STATES[states[place]])));
  show(part("sum"), h("b", {}, begun), " games begun = ", h("span", { class: "open" }, `${open} in play`), " + ", h("span", { class: "way" }, `${way} on their way`), ` + ${abandoned} given up + `, h("span", { class: "disk" }, h("b", {}, disk), " on disk"), `. Lost: ${lost}. Twice: ${twice}.`);
  [disk, way, open].forEach((games, place) => { part("bar").children[place].style.flexGrow = games; });
}

document.querySelector("header").append(themeButton());
part("plugs").append(...Object.entries(plugs).map(([plug, title]) => button(title, () => pull(plug, title))), button("Pause", (element) => {
  element.textContent = (runs = !runs) ? "Pause" : "Go on";
}));
setInterval(() => {
  if (runs && ++second >= courses[""].length) [second, pulled] = [0, ""];
  draw();
}, 400);
draw();
