// What a person chose for this device, kept by the browser; a browser that keeps nothing has the defaults each time.

const KEY = "azq-contribute", TOKEN = "azq-contributor", RUNNING = "azq-running";
const CORES = Math.max(1, navigator.hardwareConcurrency || 2);

/** The four controls first: {least, most, usual, step, name, says(value)}. */
export const CONTROLS = {
  share: { name: "Share of each core", least: 10, most: 100, step: 5, usual: 80, says: (value) => `${value} %` },
  workers: { name: "Workers", least: 1, most: CORES, step: 1, usual: Math.max(1, CORES - 1), says: (value) => `${value} of ${CORES} cores` },
  quality: { name: "Search quality", least: 25, most: 100, step: 25, usual: 100, says: (value) => (value === 100 ? "Full (recommended)" : `${value} % of the run's simulations`) },
  games: { name: "Games at once", least: 1, most: 64, step: 1, usual: 16, says: (value) => `${value} per worker` },
};
const MANNERS = { battery: true, hidden: false, gpu: true, device: "", name: "", run: "" };

/** The settings, whole and within their bounds. */
export function load() {
  const kept = JSON.parse(read(KEY) || "{}");
  const settings = { ...MANNERS, ...Object.fromEntries(Object.entries(CONTROLS).map(([name, { usual }]) => [name, usual])) };
  for (const [name, value] of Object.entries(settings)) if (typeof kept[name] === typeof value) settings[name] = kept[name];
  for (const [name, { least, most }] of Object.entries(CONTROLS)) settings[name] = Math.min(most, Math.max(least, settings[name]));
  return settings;
}

export const save = (settings) => write(KEY, JSON.stringify(settings));

/** What the gateway knows this browser by. */
export const token = { get: () => read(TOKEN) ?? "", set: (value) => write(TOKEN, value) };

/** Whether this tab was at work when it was reloaded. */
export const running = { get: () => read(RUNNING, "sessionStorage") === "yes", set: (value) => write(RUNNING, value ? "yes" : "", "sessionStorage") };

function read(key, where = "localStorage") {
  try {
    return globalThis[where].getItem(key);
  } catch {
    return null;
  }
}

function write(key, value, where = "localStorage") {
  try {
    globalThis[where].setItem(key, value);
  } catch {
    // the browser keeps nothing
  }
}
