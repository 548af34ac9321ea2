// Evaluations of a network in this thread. Those in whole numbers run in azq.wasm, with the same bits as everywhere; others in ONNX Runtime
// Web, which is fetched for them: on WebAssembly or, where a real adapter answers, on WebGPU.

const RUNTIMES = {
  wasm: { script: "ort.wasm.min.mjs", binary: "ort-wasm-simd-threaded.wasm.gz" },
  webgpu: { script: "ort.jspi.min.mjs", binary: "ort-wasm-simd-threaded.jspi.wasm.gz" },
};
const VENDOR = new URL("vendor/", import.meta.url);
const MAGIC = [..."azq1"].map((letter) => letter.charCodeAt(0)); // of a network in whole numbers
const loaded = new Map();

/**
 * The network of a model's bytes; `network.backend` says what runs it, `network.fallback` why that is not WebGPU where it was asked for.
 * `core`: what loadCore gave, for networks in whole numbers.
 * `test`: {positions, logits, values, tolerance, game}, as ModelUpdate has them: what it must answer before it is used.
 * Throws an Error where no backend opens the model and passes the test.
 */
export async function openNetwork(model, { core = null, backend = "auto", vendor = VENDOR, test = null } = {}) {
  if (core && MAGIC.every((byte, i) => model[i] === byte)) return tested(core.network(model), test);
  let fallback = "";
  if (backend !== "wasm") {
    try {
      fallback = await whyNoGpu(backend);
      if (!fallback) return await opened("webgpu", model, vendor, test, "");
    } catch (error) {
      fallback = `WebGPU: ${error.message}`;
    }
    if (backend === "webgpu") throw new Error(fallback);
  }
  return opened("wasm", model, vendor, test, fallback);
}

/** Float planes (L, C, H, W) and scalars (L, S) of packed observations (L, P) of a game {planes: [C, H, W], scalars: S, packedSize: P}. */
function unpack(packed, count, { planes: [channels, rows, columns], scalars, packedSize }) {
  const bits = channels * rows * columns;
  const found = { planes: new Float32Array(count * bits), scalars: new Float32Array(count * scalars) };
  for (let leaf = 0; leaf < count; leaf++) {
    const row = packed.subarray(leaf * packedSize, (leaf + 1) * packedSize);
    for (let bit = 0; bit < bits; bit++) found.planes[leaf * bits + bit] = (row[bit >> 3] >> (bit & 7)) & 1;
    for (let i = 0; i < scalars; i++) found.scalars[leaf * scalars + i] = ((row[packedSize - scalars + i] << 24) >> 24) / 16;
  }
  return found;
}

class Network {
  #session;
  #Tensor;

  constructor(backend, fallback, session, Tensor) {
    Object.assign(this, { backend, fallback });
    this.#session = session;
    this.#Tensor = Tensor;
  }

  /** Logits (L, A), unmasked, and values (L, V) of packed observations (L, P) of a game {planes: [C, H, W], scalars: S, packedSize: P}. */
  async evaluate(packed, count, game) {
    const { planes, scalars } = unpack(packed, count, game);
    const size = game.planes.reduce((one, other) => one * other);
    const inputs = { planes: new this.#Tensor("float32", planes, [count, ...game.planes]) };
    if (game.scalars) inputs.scalars = new this.#Tensor("float32", scalars, [count, game.scalars]);
    const { logits, values } = await this.#session.run(inputs);
    return { logits: logits.data, values: values.data };
  }

  close() {
    return this.#session.release();
  }
}

async function opened(backend, model, vendor, test, fallback) {
  const ort = await runtime(backend, vendor);
  const session = await ort.InferenceSession.create(model, { executionProviders: [backend] });
  return tested(new Network(backend, fallback, session, ort.Tensor), test);
}

async function tested(network, test) {
  try {
    if (test) await check(network, test);
  } catch (error) {
    await network.close();
    throw error;
  }
  return network;
}

/** Loaded once a thread. */
function runtime(backend, vendor) {
  if (!loaded.has(backend)) {
    const { script, binary } = RUNTIMES[backend];
    loaded.set(backend, (async () => {
      const [ort, packed] = await Promise.all([import(new URL(script, vendor)), read(new URL(binary, vendor))]);
      Object.assign(ort.env.wasm, { numThreads: 1, wasmPaths: String(vendor), wasmBinary: await unzipped(packed) });
      return ort;
    })());
    loaded.get(backend).catch(() => loaded.delete(backend));
  }
  return loaded.get(backend);
}

async function read(url) {
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.pathname} is not there (${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A server may have declared the file packed: then it comes unpacked. */
async function unzipped(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

/** Empty where WebGPU is worth trying. */
async function whyNoGpu(backend) {
  if (typeof WebAssembly.Suspending !== "function") return "this browser cannot suspend WebAssembly, which WebGPU needs";
  const adapter = await globalThis.navigator?.gpu?.requestAdapter();
  if (!adapter) return "no WebGPU adapter answers";
  const emulated = adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter;
  return backend === "auto" && emulated ? "the only WebGPU adapter is software" : "";
}

async function check(network, { positions, logits, values, tolerance, game }) {
  const count = positions.length / game.packedSize;
  const answer = await network.evaluate(positions, count, game);
  for (const [name, wanted] of [["logits", logits], ["values", values]]) {
    const off = wanted.reduce((most, value, i) => Math.max(most, Math.abs(value - answer[name][i])), 0);
    if (answer[name].length !== wanted.length || !(off <= tolerance)) {
      throw new Error(`the network fails its self-test on ${network.backend}: ${name} are off by ${off.toPrecision(2)}, at most ${tolerance.toPrecision(2)} are allowed`);
    }
  }
}
