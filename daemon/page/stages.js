// A run's way in stages as one thin strip: how long each took stands below it, when and with which pauses under the pointer.

import { h, s } from "../web/dom.js";
import { moment, span } from "../web/format.js";

const COLOURS = { "spin-up": 7, fill: 2, main: 1, final: 3 };
const WIDTH = 1000;
const LEAST = 3;  // of it, so that a short stage beside a long one is seen

/** The content of the strip; nothing before a run has begun. */
export function stagesStrip(stages, now = Date.now()) {
  if (!stages.length) return [];
  const from = stages[0].began_ms;
  const end = (one) => one.ended_ms ?? Math.max(now, one.began_ms);
  const at = (ms) => (WIDTH * (ms - from)) / (end(stages.at(-1)) - from || 1);
  const part = (one, kind, text) => s("rect", { class: kind, x: at(one.began_ms), width: Math.max(LEAST, at(end(one)) - at(one.began_ms)), height: 10 },
    s("title", {}, `${text}, ${moment(one.began_ms)} to ${one.ended_ms === null ? "now" : moment(one.ended_ms)}`));
  return [
    s("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": stages.map(told).join(", ") },
      stages.map((one) => part(one, `stage c${COLOURS[one.name]}`, told(one))), stages.flatMap((one) => one.pauses.map((pause) => part(pause, "pause", "paused")))),
    h("figcaption", {}, stages.map((one) => h("span", { "data-stage": one.name }, h("i", { class: `c${COLOURS[one.name]}` }), told(one)))),
  ];
}

/** main 47 min so far, paused 2 min */
function told(stage) {
  const paused_ms = stage.pauses.reduce((sum, one) => sum + (one.ended_ms === null ? 0 : one.ended_ms - one.began_ms), 0);
  return `${stage.name} ${span(stage.lasted_s)}${stage.ended_ms === null ? " so far" : ""}${paused_ms ? `, paused ${span(paused_ms / 1000)}` : ""}`;
}
