// Where this azq answers: its own root, which a proxy may have put below a prefix.

export const ROOT = new URL("../", import.meta.url);

/** The address of one of azq's own paths, "/v1/runs" for example. */
export const at = (path) => new URL(`.${path}`, ROOT).href;
