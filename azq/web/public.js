// The public figures of a run and of its contributors.

import { at } from "./address.js";
import { Chart } from "./chart.js";
import { MEASURES } from "./measures.js";

const PATIENCE_MS = 10_000;

/** The JSON of a public route, of one run where it is named; throws an Error that a person understands. */
export async function fetchPublic(rest = "", run = "") {
  const response = await fetch(at(`/v1/public${rest}${run && `?run=${encodeURIComponent(run)}`}`), { headers: { accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE_MS) }).catch(() => null);
  if (!response) throw new Error("The gateway does not answer");
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) throw new Error(answer?.detail ?? `the gateway answered ${response.status}`);
  return answer;
}

/** The run that the page's address names, `?run=NAME`; empty: whichever. */
export const runOfAddress = () => new URLSearchParams(location.search).get("run") ?? "";

/** The run of these figures; null: none wants volunteers. */
export const knownRun = (figures) => (figures.run ? figures : null);

/** The game's own measure by version; `draw(facts)` shows what is known of it. */
export function strengthChart() {
  const chart = new Chart({ ...MEASURES.elo, series: [{ name: "Strength", colour: 3, points: true }], formatX: (version) => `v${Math.round(version)}`, empty: "No version is rated yet", height: 180 });
  let shown = "elo";
  const draw = ({ headline, trend }) => {
    const column = (name) => trend.map((point) => point[name]);
    if (shown !== headline) chart.rename(MEASURES[shown = headline]);
    chart.update({ x: column("version"), ys: [column("value")], bands: typeof trend[0]?.low === "number" ? { 0: [column("low"), column("high")] } : {} });
  };
  return { element: chart.element, draw };
}

/** A game's name as people write it. */
export const gameName = (game) => game.replaceAll("_", " ");
