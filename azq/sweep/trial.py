"""One trial: an `azq up` in a home of its own, told what it is worth as it learns."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from azq.errors import AzqError
from azq.process.start import AZQ, bare_environment
from azq.status.summary import RunStatus
from azq.sweep.plan import Scalar, StudyPlan


class TrialFailed(AzqError):
    """A run that ended without anything measured."""


class TrialRun:
    """A run as a child process; `end` may be called from any thread."""

    def __init__(self, plan: StudyPlan, number: int, chosen: Mapping[str, Scalar], folder: Path) -> None:
        self.name = f"{plan.name}-{number:04}"
        self.log = folder / f"{self.name}.log"
        home = folder / self.name
        places = [f'home="{home}"', "daemon.port=0", "run.seed=" + str(plan.seed + number)]
        settings = [word for text in (*places, *plan.overrides(chosen)) for word in ("--set", text)]
        preset = ["--preset", plan.preset] if plan.preset else []
        command = [*AZQ, "up", "--json", "--game", plan.game, "--run", self.name, "--until", plan.until, *preset, *settings]
        with self.log.open("wb") as log:  # a session of its own: Ctrl-C is ours, and is passed on once
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=bare_environment(), start_new_session=True, text=True
            )

    def statuses(self) -> Iterator[RunStatus]:
        """How the run goes, to its end. Raises `TrialFailed` where it ended otherwise than well."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                yield msgspec.json.decode(line, type=RunStatus)
        if code := self._process.wait():
            said = self.log.read_text("utf-8", "replace").strip().splitlines()
            raise TrialFailed(f"trial {self.name} ended with {code}: {said[-1] if said else 'it said nothing'}; see {self.log}")

    def end(self) -> None:
        """Lets the run drain and end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
