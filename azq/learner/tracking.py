"""Where training curves go: four methods, TensorBoard by default.

Tags: loss/policy loss/value loss/<further head> train/lr train/samples_per_s replay/samples_per_insert replay/window
replay/games selfplay/policy_lag selfplay/plies weights/version arena/elo arena/grade_error arena/grade_loss
arena/score_<opponent> arena/points_<opponent>.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from azq.errors import MissingExtra


class Tracker(Protocol):
    """Receives figures and text of a run."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Figures by tag at a training step."""

    def text(self, tag: str, text: str, step: int) -> None:
        """A note, such as the run's settings."""

    def flush(self) -> None:
        """Makes all that was given readable by others."""

    def close(self) -> None:
        """Flushes and releases the files."""


class NullTracker:
    """Keeps nothing."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Ignores them."""

    def text(self, tag: str, text: str, step: int) -> None:
        """Ignores it."""

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to release."""


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
        """One event with all the figures."""
        event = self._event(wall_time=time.time(), step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, simple_value=value)
        self._writer.add_event(event)

    def text(self, tag: str, text: str, step: int) -> None:
        """A string that the text page shows."""
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        event = self._event(wall_time=time.time(), step=step)
        value = event.summary.value.add(tag=f"{tag}/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._writer.add_event(event)

    def flush(self) -> None:
        """Writes what is queued."""
        self._writer.flush()

    def close(self) -> None:
        """Writes what is queued and closes the file."""
        self._writer.close()
