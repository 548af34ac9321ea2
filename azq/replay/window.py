"""The samples the learner draws from: the newest ones, in flat ring buffers; how many of them, and how often.

Each inserted sample is to be drawn `samples_per_insert` times (after the rate limiters of Reverb: Cassirer et al., 2021, section 3.3). The
learner never draws more; self-play may run `limiter_slack` samples ahead of it. At any counts at most one side is stalled, so the run
cannot lock.
Letters: N samples, B batch, P bytes of a packed observation, A actions, V values, M bytes of a mask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq.config import LearnerConfig
from azq.errors import StoreError
from azq.files import publish_file
from azq.replay.samples import JOINT_GAMES, NO_COLUMNS, Columns, Rules, Samples, mark_of, samples_of
from azq.replay.segments import SegmentLog
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

PURGED = "purged.json"
WINDOW_FRACTION = 0.5  # of all samples, the newest


def steps_allowed(inserted: int, consumed: int, config: LearnerConfig) -> int:
    """Batches that keep samples drawn per sample inserted within `samples_per_insert`; 0 before the window has its minimum."""
    if inserted < config.min_window:
        return 0
    return max(0, int((config.samples_per_insert * inserted - consumed) // config.batch_size))


def stall_selfplay(inserted: int, consumed: int, config: LearnerConfig) -> bool:
    """True when self-play is more than `limiter_slack` samples ahead of a learner that could train."""
    ahead = inserted - consumed / config.samples_per_insert
    return steps_allowed(inserted, consumed, config) > 0 and ahead > config.limiter_slack


def window_size(total: int, config: LearnerConfig) -> int:
    """Samples to draw from when `total` were ever inserted: the newest half, within the settings' bounds."""
    wanted = max(config.min_window, min(config.max_window, int(WINDOW_FRACTION * total)))
    return min(total, wanted, config.max_window)


class Window:
    """Ring of the newest `capacity` samples; memory is taken up as samples come, (P + 2 A + 4 V + M) bytes each and optional columns.

    One thread may add while others gather.
    """

    def __init__(self, game: Rules, capacity: int, columns: Columns = NO_COLUMNS) -> None:
        actions = game.num_distinct_actions()
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "packed": (np.uint8, (game.packed_size(),)),
            "policies": (np.float16, (actions,)),
            "values": (np.float32, (game.value_size(),)),
            "masks": (np.uint8, ((actions + 7) // 8,)),
        }
        self.columns = columns
        self.shapes = shapes | columns.shapes()  # element type and shape of one sample's entry, by column
        self.capacity = capacity
        self.total = 0  # samples ever added, but for those that were dropped and what they had outlived
        self._lock = threading.Lock()
        self._rings: dict[str, NDArray[Any]] = {name: np.zeros((capacity, *shape), kind) for name, (kind, shape) in self.shapes.items()}
        self._marks = np.zeros(capacity, np.uint32)

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    @property
    def bytes_per_sample(self) -> int:
        return sum(ring.nbytes for ring in self._rings.values()) // self.capacity

    def add(self, samples: Samples) -> None:
        """Adds samples with the window's columns, oldest first; the oldest of the ring make room."""
        count = len(samples)
        keep = min(count, self.capacity)
        with self._lock:
            start = (self.total + count - keep) % self.capacity
            head = min(keep, self.capacity - start)  # the rest goes to the ring's beginning
            marks = np.zeros(count, np.uint32) if samples.marks is None else samples.marks
            for ring, column in [*((ring, getattr(samples, name)) for name, ring in self._rings.items()), (self._marks, marks)]:
                newest = column[count - keep :]
                ring[start : start + head] = newest[:head]
                ring[: keep - head] = newest[head:]
            self.total += count

    def drop(self, worker: str) -> tuple[int, int]:
        """Takes out all samples of a worker's games; returns how many games and samples. A batch being drawn may still have some."""
        with self._lock:
            places = (self.total + np.arange(-len(self), 0)) % self.capacity
            marks = self._marks[places]
            theirs = marks >> 1 == mark_of(worker)
            others = places[~theirs]
            for ring in (*self._rings.values(), self._marks):
                ring[: len(others)] = ring[others]
            self.total = len(others)
        return int((marks[theirs] & 1).sum()), int(theirs.sum())

    def newest(self, ages: NDArray[np.int64], total: int | None = None) -> Samples:
        """Samples by age, 0 the newest of the first `total` that were ever added, else of all: what was added since then moves none.

        Where the ring had to make room, what took the place of a sample stands for it.
        """
        arrays = {name: np.empty((len(ages), *shape), kind) for name, (kind, shape) in self.shapes.items()}
        self.gather(ages, arrays, total=self.total if total is None else total)
        return Samples(**arrays)

    def gather(self, ages: NDArray[np.int64], into: Mapping[str, NDArray[Any]], *, total: int) -> None:
        """The same into arrays by column."""
        places = (total - 1 - ages) % self.capacity
        with self._lock:
            for name, ring in self._rings.items():
                # `clip` writes straight into the buffer; the default fills a temporary one first. All places are within bounds.
                np.take(ring, places, axis=0, out=into[name], mode="clip")


class Purges:
    """The workers of a log's folder whose games count no more, each with the moment until which he had finished them.

    The segment log itself keeps every byte as the proof of what was played.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / PURGED
        self._read: bytes = b""
        self._until_ms: dict[str, int] = {}
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def drops(self, event: SampleEvent) -> bool:
        """Whether a game is one of theirs."""
        return event.finished_ms <= self._until_ms.get(event.worker, -1)

    def order(self, until_ms: Mapping[str, int]) -> dict[str, int]:
        """Those of the orders that are new; they are on disk then. Raises `StoreError`."""
        fresh = {worker: until for worker, until in until_ms.items() if until > self._until_ms.get(worker, -1)}
        if fresh:
            self._until_ms |= fresh
            self._read = msgspec.json.encode(self._until_ms)
            try:
                publish_file(self._file, self._read)
            except OSError as error:
                raise StoreError(f"{self._file} cannot be written: {error.strerror}; free disk space there") from error
        return fresh

    def reload(self) -> list[str]:
        """Workers that another process purged since the last call. Raises `StoreError`."""
        try:
            data = self._file.read_bytes() if self._file.exists() else b""
            if data == self._read:
                return []
            before, self._read = self._until_ms, data
            self._until_ms = msgspec.json.decode(data, type=dict[str, int])
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{self._file} cannot be read: {error}; write it again: azq volunteers purge") from error
        return [worker for worker, until in self._until_ms.items() if until > before.get(worker, -1)]


def rebuild(
    window: Window,
    segments: SegmentLog,
    game: Rules,
    *,
    purges: Purges | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> None:
    """Fills an empty window from the log's newest games, so that it draws what the window before a restart drew; purged ones are left out.

    Raises `WireError` or `IllegalActionError` when the rules no longer accept a stored game, and what `SegmentLog.tail` raises.
    """
    frames = segments.tail(window.capacity)
    while some := list(islice(frames, JOINT_GAMES)):
        progress("the window's games")
        events = [decode(frame, SampleEvent) for frame in some]
        if events := [event for event in events if not (purges and purges.drops(event))]:
            window.add(samples_of(game, events, window.columns)[0])
