"""One trial: an `azq up` in a home of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from azq.errors import AzqError
from azq.process.apart import up
from azq.process.proc import children, stat_of
from azq.status.studies import Scalar
from azq.status.summary import RunStatus
from azq.sweep.plan import StudyPlan


class TrialFailed(AzqError):
    """A run that ended without anything measured."""


def tree_cpu_s(pid: int) -> float:
    """CPU-seconds of a process, its children, theirs and so on, those that ended included."""
    own = stat_of(pid)
    return own.cpu_s + own.ended_cpu_s + sum(map(tree_cpu_s, children(pid))) if own else 0.0


class RunsHere:
    """Each an `azq up`; one that was cut off begins anew."""

    def __init__(self, plan: StudyPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder

    def open(self, number: int, chosen: Mapping[str, Scalar]) -> RunHere:
        return RunHere(self._plan, number, chosen, self._folder)


class RunHere:
    """A run as a child process; `end` may be called from any thread."""

    def __init__(self, plan: StudyPlan, number: int, chosen: Mapping[str, Scalar], folder: Path) -> None:
        self.name = plan.run_name(number)
        self.log = folder / f"{self.name}.log"
        preset = ["--preset", plan.preset] if plan.preset else []
        until = ["--until", plan.goals] if plan.goals else []
        self._cpu_s, self._ended = plan.limit_cpu_s(), False
        home = folder / self.name
        home.mkdir(parents=True, exist_ok=True)
        self._process = up(home, self.log, plan.game, self.name, plan.overrides(chosen), *until, *preset, stdout=subprocess.PIPE, text=True)

    def statuses(self) -> Iterator[RunStatus]:
        """How the run goes, to its end. Raises `TrialFailed` where it ended otherwise than well."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                spent = tree_cpu_s(self._process.pid) / self._cpu_s
                status = msgspec.json.decode(line, type=RunStatus)
                yield replace(status, progress=min(1.0, max(status.progress, spent)))
                if spent >= 1.0:
                    self.end()
        if code := self._process.wait():
            said = self.log.read_text("utf-8", "replace").strip().splitlines()
            raise TrialFailed(f"trial {self.name} ended with {code}: {said[-1] if said else 'it said nothing'}; see {self.log}")

    def end(self) -> None:
        """Lets the run drain and end."""
        if not self._ended and self._process.poll() is None:
            self._ended = True  # a second one would abort it
            self._process.send_signal(signal.SIGINT)
