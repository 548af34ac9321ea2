"""What takes training curves, settings and weights of a run.

Tags: loss/policy loss/value loss/<further head> train/lr train/samples_per_s replay/samples_per_insert replay/window
replay/games selfplay/policy_lag selfplay/plies weights/version phase/wall_<part of the learner's time>, and those of
`azq.learner.curves`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from azq.wire.messages import WeightEvent

Fetch = Callable[[], bytes]  # of published weights, as their file has them


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as its trackers know it; the same after each restart."""

    name: str
    created_ms: int
    directory: Path
    settings: Mapping[str, Any]  # by section, plain values

    @property
    def id(self) -> str:
        """Tells the run from an earlier one of the same name."""
        return f"{self.name}-{self.created_ms}"

    @property
    def game(self) -> str:
        """What it learns."""
        return str(self.settings["run"]["game"])


class Tracker(Protocol):
    """Raises what its library raises."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Figures by tag at a training step."""

    def published(self, event: WeightEvent, fetch: Fetch) -> None:
        """A version of the weights was published."""

    def flush(self) -> None:
        """Makes all that was given readable by others."""

    def close(self) -> None:
        """Flushes, and says that the learner ends."""
