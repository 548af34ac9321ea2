// Numbers, times and ages as people read them.

const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** At most four digits and a letter: 12.3k, 4.56M; small numbers keep what tells them apart. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, letter] of UNITS) {
    if (Math.abs(value) >= size * 0.9995) return `${trim((value / size).toPrecision(3))}${letter}`;
  }
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(1) : trim(value.toPrecision(2));
}

const trim = (text) => (text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** Whole numbers with thin spaces between thousands. */
export const whole = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** A number of things: 1 game, 12 games. */
export const many = (number, thing) => `${whole(number)} ${thing}${number === 1 ? "" : "s"}`;

export const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(digits)} %`);

export const fixed = (digits) => (value) => (value === null || value === undefined ? "–" : value.toFixed(digits));

export const signed = (value) => (value === null || value === undefined ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(0)}`);

const WIDEST_ELO = 400;  // as in azq/status/strength.py: half an interval beyond which a rating says nothing yet

export const fewGames = (low, high) => high - low > 2 * WIDEST_ELO;

/** A rating with half of its 95 % interval. */
export const eloText = (elo, low, high) => (fewGames(low, high) ? "too few games" : `${signed(elo)} ± ${((high - low) / 2).toFixed(0)}`);

/** Seconds as h:mm:ss. */
export function clock(seconds) {
  const all = Math.floor(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
}

/** A time span in its largest unit: 0.4 s, 12 s, 3 min, 5 h, 2 d. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** How long ago, by this machine's clock. */
export const ago = (ms) => (ms ? `${span(Math.max(0, (Date.now() - ms) / 1000))} ago` : "–");

/** The time of day of a moment, with the day where it is not today. */
export function moment(ms) {
  const then = new Date(ms);
  const time = then.toLocaleTimeString("en-GB");
  return then.toDateString() === new Date().toDateString() ? time : `${then.getDate()}/${then.getMonth() + 1} ${time.slice(0, 5)}`;
}
