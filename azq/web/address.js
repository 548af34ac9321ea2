// Where this azq answers: its own root, which a proxy may have put below a prefix.

export const ROOT = new URL(/\/assets-\w+\/web\/address\.js$/.test(import.meta.url) ? "../../" : "../", import.meta.url);

/** The bytes at an address; an Error with status 503 where none come: another try may get them. `what` says "the rules are". */
export async function fetchBytes(url, what) {
  const bytes = await fetch(url).then((response) => (response.ok ? response.arrayBuffer() : response.status)).catch(() => 503);
  if (typeof bytes === "number") throw Object.assign(new Error(bytes === 503 ? `${what} out of reach` : `${what} not there (${bytes})`), { status: bytes });
  return new Uint8Array(bytes);
}

/** The address of one of azq's own paths, "/v1/runs" for example. */
export const at = (path) => new URL(`.${path}`, ROOT).href;
