"""Where training curves go, TensorBoard by default, and the arena's results among them.

Tags: loss/policy loss/value loss/<further head> train/lr train/samples_per_s replay/samples_per_insert replay/window
replay/games selfplay/policy_lag selfplay/plies weights/version arena/elo arena/grade_error arena/grade_loss
arena/score_<opponent> arena/points_<opponent>.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from azq.bus.base import Bus
from azq.errors import MissingExtra, WireError
from azq.wire import keys
from azq.wire.codec import decode_either
from azq.wire.messages import GradeResult, MatchResult


class Tracker(Protocol):
    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Figures by tag at a training step."""

    def flush(self) -> None:
        """Makes all that was given readable by others."""


class TensorBoardTracker:
    """Writes event files that `tensorboard --logdir` reads; raises `MissingExtra` without the tensorboard package."""

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise MissingExtra("training curves need the package tensorboard; install it with `pip install tensorboard`") from None
        self._event = Event
        self._writer = EventFileWriter(str(directory), filename_suffix=f".{socket.gethostname()}")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        event = self._event(wall_time=time.time(), step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, simple_value=value)
        self._writer.add_event(event)

    def text(self, tag: str, text: str, step: int) -> None:
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        event = self._event(wall_time=time.time(), step=step)
        value = event.summary.value.add(tag=f"{tag}/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._writer.add_event(event)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def elo_difference(wins: int, draws: int, losses: int) -> float:
    """Elo points between two players by the logistic model; half a game is added to each side so that no score is infinite."""
    score = (wins + draws / 2 + 0.5) / (wins + draws + losses + 1)
    return 400.0 * math.log10(score / (1.0 - score))


def match_curves(result: MatchResult) -> dict[str, float]:
    """Tags of a match of the run's weights, none where an engine ended it; `arena/elo` is counted from the pure UCT opponent."""
    if not result.games:
        return {}
    opponent = "".join(letter if letter.isalnum() or letter in "_.-" else "_" for letter in result.spec.second)
    curves = {f"arena/score_{opponent}": result.score, f"arena/points_{opponent}": result.points}
    if result.second.startswith("uct:") and result.seats == 2:
        curves["arena/elo"] = elo_difference(result.wins, result.draws, result.losses)
    return curves


class ResultCurves:
    """Follows the run's results stream; each result is given once."""

    def __init__(self) -> None:
        self._last_id = "0"

    def read(self, bus: Bus, run: str) -> dict[str, float]:
        """Curves of the results that came since the last call, the newest of each tag."""
        curves: dict[str, float] = {}
        for entry in bus.after(keys.results(run), self._last_id):
            self._last_id = entry.id
            with contextlib.suppress(WireError):  # its readers in the daemon report it
                curves |= _curves(decode_either(entry.frame, MatchResult, GradeResult))
        return curves


def _curves(result: MatchResult | GradeResult) -> dict[str, float]:
    if isinstance(result, MatchResult):
        return match_curves(result)
    return {"arena/grade_error": result.errors / max(1, result.positions), "arena/grade_loss": result.mean_loss}
