"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from azq.learner.tracking.tracker import Fetch, TrackedRun
from azq.wire.messages import WeightEvent


class TensorBoardTracker:
    """Writes what `tensorboard --logdir` reads; weights lie in the run's folder already."""

    def __init__(self, run: TrackedRun) -> None:
        self._writer = EventFileWriter(str(run.directory / "tensorboard"), filename_suffix=f".{socket.gethostname()}")
        self._text("run", json.dumps(run.settings, indent=1))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        event = Event(wall_time=time.time(), step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, simple_value=value)
        self._writer.add_event(event)

    def _text(self, tag: str, text: str) -> None:
        event = Event(wall_time=time.time(), step=0)
        value = event.summary.value.add(tag=f"{tag}/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._writer.add_event(event)

    def published(self, event: WeightEvent, fetch: Fetch) -> None: ...

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
