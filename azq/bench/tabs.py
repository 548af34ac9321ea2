"""A run whose games browsers' tabs make: what a tab does a second, and what a game costs the gateway and the wire."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.host.fronts import free_port
from azq.local import Local
from azq.process.proc import cpu_s, private_bytes
from azq.status.observe import read_weights
from azq.status.workers import GATEWAY
from azq.wire.messages import WeightEvent
from azq.wire.tabs import TabProgress, from_tab

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
