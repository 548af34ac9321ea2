"""Keeps what is served up to date in a thread of its own: runs, weight events, loads. Serving never waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import torch

from azq import logs
from azq.bus.base import Bus
from azq.errors import BrokerError, ConfigError
from azq.inference.served import ServedRun
from azq.inference.stats import Stats
from azq.ledger.types import RunState, RunView

RUNS_S = 0.25  # between looks at the runs
WAIT_S = 0.1  # for a weight event, which ends the wait at once
ASKED_S, ASKED_WAIT_S = 1.0, 0.01  # for so long after a version was asked for, more are waited for in so short steps
PREPARE_AFTER_S = 1.0  # without new weights, before a spare is made ahead
SERVED_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FINISHED})  # finished: its last evaluation


class Runs(Protocol):
    """The part of the ledger that names the runs."""

    def runs(self) -> list[RunView]: ...


class Follower:
    """The runs that are served. Its thread replaces `served` and never changes it, so that whoever reads it needs no lock."""

    def __init__(self, control: Bus, runs: Runs, admit: Callable[[RunView], ServedRun], stats: Stats) -> None:
        self.served: dict[str, ServedRun] = {}
        self.news = threading.Event()  # set after every change
        self._control = control
        self._runs = runs
        self._admit = admit
        self._stats = stats
        self._made_ms: dict[str, int] = {}  # when each served run was created: one made again under its name has other weights
        self._unusable: set[tuple[str, int]] = set()  # runs whose settings this host cannot serve, said once
        self._failure: Exception | None = None
        self._ask = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._runs_at_s = 0.0
        self._changed_s = 0.0
        self._asked_s = 0.0
        self._lost = False
        self._log = logs.get(__name__)

    def start(self) -> None:
        """Begins where it has not begun; raises what ended its thread."""
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread; `start` begins another."""
        self._stop.set()
        self._ask.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def ask(self) -> None:
        """Has wanted versions looked for at once."""
        self._ask.set()

    def look(self) -> bool:
        """Reads runs and events and loads what is new or wanted, once; True when anything changed. Raises BrokerError, DeviceError."""
        changed = self._look_at_runs()
        served = list(self.served.values())
        for entry in self._control.after_each({one.catalog.stream: one.catalog.last_id for one in served}):
            for one in served:
                if one.catalog.stream == entry.stream:
                    one.catalog.take([entry])
        for one in served:
            changed |= one.follow(self._stats) | one.load_wanted()
        return changed

    def _follow(self) -> None:
        torch.set_num_threads(1)  # the cores are for evaluations
        while not self._stop.is_set():
            try:
                self._look_and_tell()
            except BrokerError as error:
                if not self._lost:
                    self._log.warning("control_plane_lost", error=str(error), remedy="evaluations go on with the weights at hand")
                self._lost = True
                self._stop.wait(RUNS_S)
            except Exception as error:  # told to the serving thread, which ends with it
                self._failure = error
                self.news.set()
                return

    def _look_and_tell(self) -> None:
        if self.look():
            self._changed_s = time.monotonic()
            self.news.set()
        elif time.monotonic() - self._changed_s > PREPARE_AFTER_S:
            any(one.prepare() for one in self.served.values())
        if self._lost:
            self._lost = False
            self._log.info("control_plane_back")
        self._wait()

    def _wait(self) -> None:
        """Until there is a weight event, or somebody asks for a version."""
        last_ids = {one.catalog.stream: one.catalog.last_id for one in self.served.values()}
        if self._ask.is_set():
            self._ask.clear()
            self._asked_s = time.monotonic()
        elif last_ids and time.monotonic() - self._asked_s > ASKED_S:
            self._control.wait_for_newer(last_ids, timeout_s=WAIT_S)
        else:
            self._ask.wait(ASKED_WAIT_S)

    def _look_at_runs(self) -> bool:
        if time.monotonic() < self._runs_at_s:
            return False
        views = {view.record.run: view for view in self._runs.runs() if view.state in SERVED_STATES}
        self._runs_at_s = time.monotonic() + RUNS_S
        kept = {run: served for run, served in self.served.items() if run in views and self._made_ms[run] == made_ms(views[run])}
        new = [view for run, view in views.items() if run not in kept and (run, made_ms(view)) not in self._unusable]
        admitted = {view.record.run: served for view in new if (served := self._try_to_admit(view))}
        changed = bool(admitted) or len(kept) < len(self.served)
        self._made_ms = {run: made_ms(view) for run, view in views.items()}
        self.served = {**kept, **admitted}
        return changed

    def _try_to_admit(self, view: RunView) -> ServedRun | None:
        try:
            return self._admit(view)
        except (ConfigError, ValueError) as error:
            self._unusable.add((view.record.run, made_ms(view)))
            self._log.error("run_not_served", run=view.record.run, error=str(error))
            return None


def made_ms(view: RunView) -> int:
    """What tells a run from an earlier one of its name: when it was created."""
    return view.record.created_ms
