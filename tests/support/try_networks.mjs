// Opens each network of a folder and says how far its answers are off; runs in Node and in browsers.

/** `module`: network.js; `read(name)`: bytes of a file of the folder; answers rows {kind, backend, fallback, logitsOff, valuesOff, sameAlone, refused}, or {kind, failed}. */
export async function tryNetworks({ openNetwork }, read, options) {
  const rows = [];
  for (const { kind, game, tolerance } of JSON.parse(new TextDecoder().decode(await read("cases.json")))) {
    const [model, positions, logits, values] = await Promise.all(["onnx", "positions", "logits", "values"].map((suffix) => read(`${kind}.${suffix}`)));
    const test = { game, tolerance, positions, logits: floats(logits), values: floats(values) };
    const network = await openNetwork(model, { ...options, test }).catch((error) => rows.push({ kind, failed: error.message }) && null);
    if (!network) continue;
    const count = positions.length / game.packedSize;
    const answer = await network.evaluate(positions, count, game);
    const one = await network.evaluate(positions, 1, game);
    const wrong = { ...test, values: test.values.map((value) => value + 2 * tolerance) };
    rows.push({
      kind, backend: network.backend, fallback: network.fallback, logitsOff: off(answer.logits, test.logits), valuesOff: off(answer.values, test.values),
      sameAlone: one.logits.every((value, i) => value === answer.logits[i]), refused: await openNetwork(model, { ...options, test: wrong }).then(() => "", (error) => error.message),
    });
    await network.close();
  }
  return rows;
}

/** The sha256 of what networks in whole numbers evaluate to, by game: logits, then values, as float32. `wasm`: bytes of azq.wasm. */
export async function hashWhole({ loadCore }, { openNetwork }, wasm, read, games) {
  const core = await loadCore(wasm), found = {};
  for (const name of games) {
    const game = core.game(name), positions = await read(`${name}.positions`);
    const network = await openNetwork(await read(`${name}.whole`), { core });
    const { logits, values } = await network.evaluate(positions, positions.length / game.packedSize, game);
    await network.close();
    const digest = await crypto.subtle.digest("SHA-256", new Float32Array([...logits, ...values]));
    found[name] = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  return found;
}

const floats = (bytes) => new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
const off = (one, other) => (one.length === other.length ? one.reduce((most, value, i) => Math.max(most, Math.abs(value - other[i])), 0) : Infinity);
