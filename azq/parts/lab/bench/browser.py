"""The core in a browser: simulations of its WebAssembly in tabs of a headless Chromium and in Node, against the extension's here."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config
from azq.host.browser import chromium, web
from azq.host.fronts import free_port
from azq.local import Local
from azq.parts.lab.bench.search import CHUNK, SIMULATIONS, TREES, rate
from azq.process.proc import cpu_s, private_bytes
from azq.search.search import exploring_values
from azq.status.observe import read_weights
from azq.status.workers import GATEWAY
from azq.wire.messages import WeightEvent
from azq.wire.tabs import TabProgress, from_tab

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


RUN = "tabs"
SETTINGS = ("run.tag=browser", "arena.every_s=0", "learner.publish_every_s=5.0")
START_S = 90.0
SETTLE_MS = 5_000  # in which a browser compiles what it will run
SHORTEST_S = 12.0  # a tab reports every few seconds
SWITCH_MS = 30_000
LOOKS = 6  # at the memory in a minute: its median leaves out what waits for the garbage collector
COUNTS = ("games", "simulations", "evaluations")  # of a tab's reports
FIRST_GAME = """() => parseInt(document.querySelector('[data-tile="in this tab"] b')?.textContent) > 0"""
PLAYS_WITH = """(version) => Number(document.querySelector('[data-tile="mine"] b').textContent.slice(1)) >= version"""


def contributions(browser: Any, game: str, seconds: float, tabs: Sequence[int]) -> dict[str, dict[str, float | None]]:
    """By the number of tabs, after one another on one run: means of a tab, and costs of a game.

    A learner trains beside them, as a run's does; `switch_s` is the time from new weights to a tab that plays with them, None where the
    games were too few for any.
    """
    run, url = running(game)
    with run:
        return {str(count): _figures(browser, url, run, count, seconds) for count in tabs}


def memory(browser: Any, game: str, minutes: float) -> dict[str, Any]:
    """What one tab that plays for a run holds, in MB, minute by minute, and by how much the last fifth of that is above the second.

    It is the private memory of the tab's process: page, Web Worker, module, network. In the first fifth it warms up.
    """
    series = []
    run, url = running(game)
    with run, tab(browser, url) as (page, heard):
        page.wait_for_function(FIRST_GAME, timeout=1000 * START_S)
        pid = _busiest_renderer(browser)
        for _ in range(max(5, round(minutes))):
            looks = []
            for _ in range(LOOKS):
                page.wait_for_timeout(60_000 * minutes / max(5, round(minutes)) / LOOKS)
                looks.append(private_bytes(pid) / 1e6)
            series.append(round(statistics.median(looks), 1))
        games = heard.progress[-1][1].games
    fifth = len(series) // 5
    before, after = statistics.median(series[fifth : 2 * fifth]), statistics.median(series[-fifth:])
    return {"memory_mb": series, "memory_growth": round(after / before - 1, 3), "games": games}


def _busiest_renderer(browser: Any) -> int:
    """The process that has spent most of those that run pages: a tab's that plays."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return int(max((each for each in found if each["type"] == "renderer"), key=lambda each: each["cpuTime"])["id"])


def running(game: str) -> tuple[Local, str]:
    """A run for tabs alone, to be started, and its gateway's address."""
    port = free_port()
    return Local(game, run=RUN, settings=SETTINGS, options=["--volunteers", "--port", str(port)]), f"http://127.0.0.1:{port}/"


@dataclass
class Overheard:
    """What a tab and its gateway said to each other."""

    size: int = 0  # bytes, both ways
    progress: list[tuple[float, TabProgress]] = field(default_factory=list)  # with the moment, s

    def listen(self, socket: Any) -> None:
        """Follows a WebSocket of the page."""
        socket.on("framesent", self._sent)
        socket.on("framereceived", self._count)

    def _count(self, frame: bytes) -> None:
        self.size += len(frame)

    def _sent(self, frame: bytes) -> None:
        self._count(frame)
        if isinstance(said := from_tab(frame), TabProgress):
            self.progress.append((time.monotonic(), said))

    def rates(self, since_s: float) -> dict[str, float]:
        """What was done a second between the first and the last report after a moment."""
        (first_s, first), *_, (last_s, last) = [each for each in self.progress if each[0] >= since_s]
        return {name: (getattr(last, name) - getattr(first, name)) / (last_s - first_s) for name in COUNTS}


def _figures(browser: Any, url: str, run: Local, count: int, seconds: float) -> dict[str, float | None]:
    with contextlib.ExitStack() as stack:
        tabs = [stack.enter_context(tab(browser, url)) for _ in range(count)]
        for page, _ in tabs:
            page.wait_for_function(FIRST_GAME, timeout=1000 * START_S)
        first = tabs[0][0]
        first.wait_for_timeout(SETTLE_MS)
        begun_s, spent_s, said = time.monotonic(), _gateway_cpu_s(run), sum(heard.size for _, heard in tabs)
        first.wait_for_timeout(1000 * max(seconds, SHORTEST_S))
        window_s, spent_s = time.monotonic() - begun_s, _gateway_cpu_s(run) - spent_s
        said = sum(heard.size for _, heard in tabs) - said
        rates = [heard.rates(begun_s) for _, heard in tabs]
        switch_s = _switch_s(first, run)
    means = {name: statistics.mean(rate[name] for rate in rates) for name in COUNTS}
    games = means["games"] * count * window_s
    return {
        **{f"{name}_per_s": round(mean, 2) for name, mean in means.items()},
        "gateway_cpu_s_per_game": round(spent_s / games, 6) if games else None,
        "bytes_per_game": round(said / games) if games else None,
        "switch_s": switch_s,
    }


@contextlib.contextmanager
def tab(browser: Any, url: str) -> Iterator[tuple[Any, Overheard]]:
    """A device of its own that plays, and what is heard of it."""
    context = browser.new_context()
    page, heard = context.new_page(), Overheard()
    page.on("websocket", heard.listen)
    until_s = time.monotonic() + START_S
    while True:
        try:
            page.goto(url)
            break
        except Exception:  # of playwright, which is loaded by name: the gateway does not listen yet
            if time.monotonic() > until_s:
                raise
            page.wait_for_timeout(200)
    page.locator("#go").click()
    yield page, heard
    context.close()


def _gateway_cpu_s(run: Local) -> float:
    """What the gateway's process, without its children, has spent."""
    return cpu_s(beat.pid for beat in run.beats(GATEWAY))


def _weights(run: Local) -> Sequence[WeightEvent]:
    return run.query(lambda client: read_weights(RedisBus(client), RUN)) or ()


def _switch_s(page: Any, run: Local) -> float | None:
    """From the next weights' publication to a tab that plays with them; None where none came in time."""
    known, until_s = max((event.version for event in _weights(run)), default=0), time.monotonic() + SWITCH_MS / 1000
    while time.monotonic() < until_s:
        page.wait_for_timeout(50)
        for event in _weights(run):
            if event.version > known:
                page.wait_for_function(PLAYS_WITH, arg=event.version, timeout=SWITCH_MS)
                return round((now_ms() - event.published_ms) / 1000, 2)
    return None
