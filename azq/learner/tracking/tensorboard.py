"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

from torch.utils.tensorboard import SummaryWriter

from azq.learner.tracking.tracker import TrackedRun


class TensorboardTracker:
    """Writes the files of `tensorboard --logdir`."""

    def __init__(self, run: TrackedRun) -> None:
        self._writer = SummaryWriter(str(run.directory / "tensorboard"), filename_suffix=f".{socket.gethostname()}")
        self._writer.add_text("run", json.dumps(run.settings, indent=1))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
