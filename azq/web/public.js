// What everybody may see of a run and of those who contribute to it.

const PATIENCE_MS = 10_000;

/** The JSON of a public route, of one run where it is named; throws an Error that a person understands. */
export async function fetchPublic(rest = "", run = "") {
  const response = await fetch(`/v1/public${rest}${run && `?run=${encodeURIComponent(run)}`}`, { headers: { accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE_MS) }).catch(() => null);
  if (!response) throw new Error("the gateway does not answer");
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) throw new Error(answer?.detail ?? `the gateway answered ${response.status}`);
  return answer;
}

/** The run that the page's address names, `?run=NAME`; empty: whichever. */
export const runOfAddress = () => new URLSearchParams(location.search).get("run") ?? "";

/** The run of these figures; null: none wants volunteers. */
export const knownRun = (figures) => (figures.run ? figures : null);

/** Strength by version, as a Chart takes it. */
export function strength(versions) {
  const column = (name) => versions.map((one) => one[name]);
  return { x: column("version"), ys: [column("elo")], bands: { 0: [column("low"), column("high")] } };
}
