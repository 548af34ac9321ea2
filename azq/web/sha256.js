// SHA-256 (FIPS 180-4): pages from plain http have no crypto.subtle.

const primes = [];
for (let number = 2; primes.length < 64; number++) if (primes.every((prime) => number % prime)) primes.push(number);
const fraction = (value) => ((value - Math.floor(value)) * 2 ** 32) | 0;
const CONSTANTS = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

/** The hash of bytes, as hexadecimal text. */
export function sha256(bytes) {
  const whole = bytes.length & ~63; // of them in full blocks, which are read where they lie
  const rest = new Uint8Array(bytes.length - whole < 56 ? 64 : 128);
  rest.set(bytes.subarray(whole));
  rest[bytes.length - whole] = 0x80;
  new DataView(rest.buffer).setBigUint64(rest.length - 8, BigInt(bytes.length) * 8n);
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  for (const [part, size] of [[bytes, whole], [rest, rest.length]]) {
    const view = new DataView(part.buffer, part.byteOffset);
    for (let place = 0; place < size; place += 64) {
      for (let i = 0; i < 16; i++) words[i] = view.getInt32(place + 4 * i);
      mix(state, words);
    }
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

const rotated = (word, by) => (word >>> by) | (word << (32 - by));

function mix(state, words) {
  for (let i = 16; i < 64; i++) {
    const [x, y] = [words[i - 15], words[i - 2]];
    words[i] = words[i - 16] + (rotated(x, 7) ^ rotated(x, 18) ^ (x >>> 3)) + words[i - 7] + (rotated(y, 17) ^ rotated(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const one = (h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + CONSTANTS[i] + words[i]) | 0;
    const two = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] += word));
}
