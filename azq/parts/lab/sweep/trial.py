"""One trial: an `azq.Local` in a home that stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from azq.errors import AzqError, EvaluationTimeout
from azq.local import Local
from azq.parts.lab.sweep.plan import StudyPlan
from azq.status.results import Scalar
from azq.status.summary import RunStatus


class TrialFailed(AzqError):
    """A run that ended without anything measured."""


class Trial:
    """A run as a child process, begun with this; `end` may be called from any thread."""

    def __init__(self, plan: StudyPlan, folder: Path, number: int, chosen: Mapping[str, Scalar]) -> None:
        self.name = plan.run_name(number)
        self._cpu_s = plan.limit_cpu_s()
        options = [*(["--until", plan.goals] if plan.goals else []), *(["--preset", plan.preset] if plan.preset else [])]
        home = folder / self.name
        self._run = Local(plan.game, run=self.name, settings=plan.overrides(chosen), options=options, folder=home).start()
        self.end = self._run.end

    def statuses(self) -> Iterator[RunStatus]:
        """How the run goes, to its end. Raises `TrialFailed` where it ended otherwise than well."""
        try:
            for status in self._run.statuses():
                spent = self._run.cpu_s() / self._cpu_s
                yield replace(status, progress=min(1.0, max(status.progress, spent)))
                if spent >= 1.0:
                    self.end()
        except EvaluationTimeout as error:
            raise TrialFailed(f"trial {self.name}: {error}") from None
