"""Keeps what is served up to date in a thread: runs, weight events, loads. Serving never waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from azq import logs
from azq.bus.base import Bus
from azq.errors import BrokerError, DeviceError, EvaluationTimeout, reason_of
from azq.inference.serve.roster import AGAIN, NOT_THE_RUNS, POLL_S, Life, Roster, Unserved
from azq.inference.serve.served import RunLoader, ServedRun
from azq.inference.serve.stats import Stats
from azq.ledger.types import RunView
from azq.waiting import AwakeClock

WAIT_S = 0.1  # for weights or a promotion, which end the wait at once
ASKED_S, ASKED_WAIT_S = 1.0, 0.01  # for so long after a version was asked for, more are waited for in so short steps
CLOSE_S = 10.0
HANGS_S = 300.0  # without progress in one run's load, after which the worker ends: no run would get new weights any more
PREPARE_AFTER_S = 1.0  # without new weights, before a spare is made ahead


@dataclass(eq=False)
class LoadingThread:
    """The runs that are served. The thread replaces `served` and never changes it, so that readers need no lock.

    Whatever goes wrong with one run costs that run alone: `unserved` says why, and tried again after a growing while.
    """

    control: Bus
    roster: Roster
    admit: Callable[[RunView], RunLoader]
    stats: Stats
    progress: Callable[[], str] = lambda: ""  # of what loading waits for

    def __post_init__(self) -> None:
        self.served: dict[str, ServedRun] = {}
        self.news = threading.Event()  # set after every change
        self._loaders: dict[str, RunLoader] = {}  # of what is served; replaced like it
        self._lives: dict[str, Life] = {}  # of each run there is: one made again under its name has other weights
        self._failures = Unserved()
        self._failure: DeviceError | None = None
        self._awake_s = AwakeClock()
        self._loading = ("", float("inf"))  # which run is at work, and since when
        self._progress = ("", 0.0)  # the last seen, and since when
        self._ask = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._changed_s = 0.0
        self._asked_s = 0.0
        self._lost = False
        self._stumbles = 0  # in a row, for unforeseen reasons
        self._log = logs.get(__name__)

    @property
    def unserved(self) -> dict[str, str]:
        waiting = {run: loader.problem for run, loader in self._loaders.items() if loader.problem and not loader.served.current}
        return {**waiting, **self._failures.reasons}

    def start(self) -> None:
        """Begins where it has not begun; raises the DeviceError that ended its thread, EvaluationTimeout where one run holds it up."""
        if self._failure is not None:
            raise self._failure
        if (progress := self.progress()) != self._progress[0]:
            self._progress = progress, self._awake_s()
        run, since_s = self._loading
        if self._awake_s() - max(since_s, self._progress[1]) > HANGS_S:
            raise EvaluationTimeout(f"loading run {run} has not ended within {HANGS_S:.0f} s; after three times this host leaves it out")
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._follow, name="loading", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread; `start` begins another."""
        self._stop.set()
        self._ask.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)  # one that hangs ends with the process
            self._thread = None

    def ask(self) -> None:
        """Has wanted versions looked for at once."""
        self._ask.set()

    def poll(self) -> bool:
        """Reads runs and events and loads what is new or wanted, once; True when anything changed. Raises BrokerError, DeviceError."""
        views = self.roster.poll()
        changed = views is not None and self._take_over(views)
        by_stream = {stream: loader.catalog for loader in self._loaders.values() for stream in loader.catalog.last_ids}
        for entry in self.control.after_each(self._last_ids()):
            by_stream[entry.stream].take([entry])
        for run, loader in self._loaders.items():
            with self._at(run):
                changed |= loader.follow(self.stats) | loader.load_wanted()
        return changed

    @contextmanager
    def _at(self, run: str) -> Iterator[None]:
        self._loading = run, self._awake_s()
        try:
            yield
        finally:
            self._loading = "", float("inf")

    def _follow(self) -> None:
        torch.set_num_threads(1)  # the cores are for evaluations
        while not self._stop.is_set():
            try:
                self._refresh()
                self._stumbles = 0
            except BrokerError as error:
                if not self._lost:
                    self._log.warning("control_plane_lost", error=str(error), remedy="evaluations go on with the weights at hand")
                self._lost = True
                self._stop.wait(POLL_S)
            except DeviceError as error:  # raised in the serving thread, which ends with it
                self._failure = error
                self.news.set()
                return
            except Exception as error:  # what is served goes on; a restart would meet the same
                self._stumbles += 1
                again_s = AGAIN.pause_s(self._stumbles)
                self._log.error("follower_stumbled", reason=reason_of(error), again_s=again_s, exc_info=error)
                self._stop.wait(again_s)

    def _refresh(self) -> None:
        if self.poll():
            self._changed_s = time.monotonic()
            self.news.set()
        elif time.monotonic() - self._changed_s > PREPARE_AFTER_S:
            any(loader.prepare() for loader in self._loaders.values())
        if self._lost:
            self._lost = False
            self._log.info("control_plane_back")
        self._wait()

    def _last_ids(self) -> dict[str, str]:
        """Of each run's weight events and promotions, by stream."""
        return {stream: last_id for loader in self._loaders.values() for stream, last_id in loader.catalog.last_ids.items()}

    def _wait(self) -> None:
        """Until weights are published or promoted, or somebody asks for a version."""
        last_ids = self._last_ids()
        if self._ask.is_set():
            self._ask.clear()
            self._asked_s = time.monotonic()
        elif last_ids and time.monotonic() - self._asked_s > ASKED_S:
            self.control.wait_for_newer(last_ids, timeout_s=WAIT_S)
        else:
            self._ask.wait(ASKED_WAIT_S)

    def _take_over(self, views: dict[str, RunView]) -> bool:
        lives = {run: life_of(view) for run, view in views.items()}
        staying = {run: loader for run, loader in self._loaders.items() if self._lives[run] == lives.get(run)}
        new = [view for run, view in views.items() if run not in staying and self._failures.due(lives[run])]
        admitted = {view.record.run: loader for view in new if (loader := self._try_to_admit(view))}
        changed = bool(admitted) or len(staying) < len(self._loaders)
        self._failures.keep(lives.values())
        self._lives = lives
        self._loaders = {**staying, **admitted}
        self.served = {run: loader.served for run, loader in self._loaders.items()}
        return changed

    def _try_to_admit(self, view: RunView) -> RunLoader | None:
        try:
            with self._at(view.record.run):
                loader = self.admit(view)
        except NOT_THE_RUNS:
            raise
        except (Exception, SystemExit) as error:  # a game's own code may do anything
            self._failures.failed(life_of(view), error)
            return None
        self._failures.mended(life_of(view))
        return loader


def life_of(view: RunView) -> Life:
    """What tells a run from an earlier one of its name: when it was created."""
    return view.record.run, view.record.created_ms
