// The daemon's REST interface: one door, which knows the token and tells a refusal from a daemon that is away.

import { ROOT, at } from "./address.js";

const KEY = `azq-token ${ROOT.pathname}`;  // one host may have several azq, each below another prefix
const PATIENCE_MS = 10_000;
const LONGER_MS = 120_000;  // of what is large

/** The daemon answered and refused; the message is its problem document's. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** No answer came. */
export class Away extends Error {}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

const QUESTION = "token?", ANSWER_MS = 200;
const tabs = globalThis.BroadcastChannel && new BroadcastChannel(KEY);
tabs?.addEventListener("message", ({ data }) => data === QUESTION && token.get() && tabs.postMessage(token.get()));

/** The token that another tab of this azq knows and this one has not tried; empty: none answers. */
export function tokenOfAnotherTab() {
  return new Promise((resolve) => {
    setTimeout(resolve, ANSWER_MS, "");
    tabs?.addEventListener("message", ({ data }) => data !== QUESTION && data !== token.get() && resolve(data));
    tabs?.postMessage(QUESTION);
  });
}

/** Takes the token of a link that `azq up` printed, `#token=...`, and leaves it neither in the address bar nor in the history. */
export function takeToken() {
  const found = /^#token=([!-~]+)$/.exec(location.hash);
  if (!found) return;
  token.set(decodeURIComponent(found[1]));
  history.replaceState(null, "", location.pathname + location.search);
}

/** The JSON answer of a request; throws Refused or Away. With the same `key` the daemon does a thing once, however often it is asked. */
export async function call(path, options) {
  return (await ask(path, options)).answer;
}

/** A page of a list, and the path of the next one or null. */
export async function callPage(path) {
  const { answer, response } = await ask(path);
  return { items: answer, next: /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1] ?? null };
}

/** A random key. */
export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** What is no JSON, such as weights. */
export async function callBytes(path) {
  return new Uint8Array(await (await reach(path, { patience_ms: LONGER_MS })).arrayBuffer());
}

async function ask(path, options) {
  const response = await reach(path, options);
  const answer = await response.json().catch(() => undefined);
  if (answer === undefined) throw new Refused(response.status, `the daemon answered ${response.status} without JSON`);
  return { answer, response };
}

async function reach(path, { method = "GET", body, key, patience_ms = PATIENCE_MS } = {}) {
  const headers = { accept: "application/json" };
  if (key) headers["idempotency-key"] = key;
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    const signal = AbortSignal.timeout(patience_ms);
    response = await fetch(at(path), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    throw new Away(String(error));
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => null);
  if (!problem && [502, 503, 504].includes(response.status)) throw new Away(`a proxy answered ${response.status}`);
  throw new Refused(response.status, problem?.detail ?? `the daemon answered ${response.status}`);
}

export const path = (run, rest = "") => `/v1/runs/${encodeURIComponent(run)}${rest}`;
