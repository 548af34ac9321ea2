// What everybody may see of a run and of those who contribute to it.

import { at } from "./address.js";
import { Chart } from "./chart.js";
import { signed } from "./format.js";

const PATIENCE_MS = 10_000;

/** The JSON of a public route, of one run where it is named; throws an Error that a person understands. */
export async function fetchPublic(rest = "", run = "") {
  const response = await fetch(at(`/v1/public${rest}${run && `?run=${encodeURIComponent(run)}`}`), { headers: { accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE_MS) }).catch(() => null);
  if (!response) throw new Error("the gateway does not answer");
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) throw new Error(answer?.detail ?? `the gateway answered ${response.status}`);
  return answer;
}

/** The run that the page's address names, `?run=NAME`; empty: whichever. */
export const runOfAddress = () => new URLSearchParams(location.search).get("run") ?? "";

/** The run of these figures; null: none wants volunteers. */
export const knownRun = (figures) => (figures.run ? figures : null);

/** Strength by version; `told(versions)` shows what is known of them. */
export function strengthChart(options) {
  const series = [{ name: "Elo", colour: 3, points: true, band: true }];
  const chart = new Chart({ title: "strength, Elo by version", series, format: signed, formatX: (version) => `v${Math.round(version)}`, empty: "no version was rated yet", ...options });
  const told = (versions) => {
    const column = (name) => versions.map((one) => one[name]);
    chart.update({ x: column("version"), ys: [column("elo")], bands: { 0: [column("low"), column("high")] } });
  };
  return { element: chart.element, told };
}
