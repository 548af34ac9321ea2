"""The core in a browser: simulations of its WebAssembly in tabs of a headless Chromium and in Node, against the extension's here."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from azq.bench.search import CHUNK, SIMULATIONS, TREES, rate
from azq.bench.tabs import contributions, memory
from azq.config import Config
from azq.host.browser import chromium, web
from azq.search.search import exploring_values

ORIGIN = "https://azq.test"  # answered here: nothing leaves the browser
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
ROUNDS = 3
# Two functions: to begin a search until its code is compiled at its best, which other threads do beside, and to go on for so many seconds.
WARM = f"""(core, {{ game, settings }}) => {{
    const search = core.game(game).search(settings, {{ slots: {TREES}, seed: 1n }})
    search.runUniform({5 * CHUNK})
    return search
}}"""
MEASURE = f"""(search, {{ seconds }}) => {{
    const begun = performance.now()
    let done = 0
    while (performance.now() - begun < 1000 * seconds) done += search.runUniform({CHUNK})
    return {{ simulations: done, seconds: (performance.now() - begun) / 1000 }}
}}"""
NODE = f"""
import {{ readFileSync }} from "node:fs"
const [web, text] = process.argv.slice(1)
const given = JSON.parse(text)
const {{ loadCore }} = await import(web + "/core.js")
const search = ({WARM})(await loadCore(readFileSync(web + "/azq.wasm")), given)
const spent = () => Number(readFileSync("/proc/self/task/" + process.pid + "/schedstat", "utf8").split(" ")[0]) // ns of this thread
const begun = spent()
const {{ simulations }} = ({MEASURE})(search, given)
console.log(1e9 * simulations / (spent() - begun))
"""


def bench_browser(config: Config, *, seconds: float, game: str, tabs: Sequence[int], core: bool, minutes: float = 0.0) -> dict[str, Any]:
    """The core in a tab, by the number of tabs at once, beside Node and the extension, with the uniform evaluator; then tabs of a run.

    In turns, medians of three rounds; shares are of the extension's speed, per CPU-second. `core` leaves the run out. With `minutes` the
    memory of a tab in place of all that. Raises `MissingExtra` as `chromium`.
    """
    if minutes:
        with chromium() as browser:
            return {"game": game} | memory(browser, game, minutes)
    settings = config.search.model_copy(update={"num_simulations": SIMULATIONS})
    turn_s = seconds / (ROUNDS * (2 + len(tabs)))
    given = {"game": game, "settings": exploring_values(settings), "seconds": turn_s}
    rounds: list[dict[str, Any]] = []
    with chromium() as browser:
        for _ in range(ROUNDS):
            native = rate(config, game, settings.algorithm, turn_s)
            found = {"native": native, "node": _in_node(given)}
            rounds.append(found | {str(count): _in_tabs(browser, count, given, native) for count in tabs})
        runs = {} if core else contributions(browser, game, seconds, tabs)

    def median(name: str, key: str | None = None) -> float | None:
        figures = [found[name] if key is None else found[name][key] for found in rounds if found[name] is not None]
        return round(statistics.median(figures), 3) if figures else None

    shares = [found["node"] / found["native"] for found in rounds if found["node"] is not None]
    return {
        "game": game,
        "algorithm": settings.algorithm,
        "native_simulations_per_cpu_s": median("native"),
        "node_simulations_per_cpu_s": median("node"),
        "node_share": round(statistics.median(shares), 3) if shares else None,
        "tabs": {each: {key: median(each, key) for key in rounds[0][each]} | runs.get(each, {}) for each in map(str, tabs)},
    }


def open_tab(browser: Any, more: Mapping[str, Path] | None = None) -> Any:
    """A page of a secure origin that has azq/web and these files at its root, and `window.core`."""
    files = {str(file.relative_to(web())): file for file in web().rglob("*")} | dict(more or {})

    def serve(route: Any) -> None:
        file = files.get(route.request.url.removeprefix(f"{ORIGIN}/"))
        body, kind = (b"<!doctype html>", "text/html") if file is None else (file.read_bytes(), TYPES[file.suffix])
        route.fulfill(body=body, content_type=kind)

    page = browser.new_page()
    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")
    page.evaluate("async () => { window.core = await (await import('/core.js')).loadCore('/azq.wasm') }")
    return page


def _in_tabs(browser: Any, count: int, given: Mapping[str, Any], native: float) -> dict[str, float]:
    """Mean figures of a tab while so many search at once."""
    pages = [open_tab(browser) for _ in range(count)]
    clocks = [page.context.new_cdp_session(page) for page in pages]
    for page, clock in zip(pages, clocks, strict=True):
        page.evaluate(f"(given) => {{ window.search = ({WARM})(window.core, given) }}", given)
        clock.send("Performance.enable")
    begun = [_cpu_s(clock) for clock in clocks]
    for page in pages:
        page.evaluate(f"(given) => {{ setTimeout(() => {{ window.found = ({MEASURE})(window.search, given) }}) }}", given)
    found = [page.wait_for_function("window.found", timeout=0).json_value() for page in pages]
    spent = [_cpu_s(clock) - before for clock, before in zip(clocks, begun, strict=True)]
    memory = [page.evaluate("window.core.memoryBytes()") for page in pages]
    for page in pages:
        page.close()
    return {
        "core_simulations_per_s": statistics.mean(tab["simulations"] / tab["seconds"] for tab in found),
        "native_share": statistics.mean(tab["simulations"] / cpu_s for tab, cpu_s in zip(found, spent, strict=True)) / native,
        "memory_mb": statistics.mean(memory) / 1e6,
    }


def _cpu_s(clock: Any) -> float:
    """What the thread of a tab's page has spent."""
    metrics = clock.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "ThreadTime")


def _in_node(given: Mapping[str, Any]) -> float | None:
    """Simulations per CPU-second; None where there is no Node."""
    if shutil.which("node") is None:
        return None
    command = ["node", "--input-type=module", "-e", NODE, str(web()), json.dumps(given)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
