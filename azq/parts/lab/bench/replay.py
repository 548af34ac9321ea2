"""The segment log: what opening a long one costs, and what storing a game does."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.config import Config
from azq.process.proc import stat_of
from azq.replay.index import BLOCK_GAMES, SegmentIndex, pack, path_of, write_index
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

GAME = "connect_four"
GAMES_PER_SEGMENT = 100_000  # of 64 MiB: 640 bytes each
SAMPLES_PER_GAME = 25
GAMES_IN_FLIGHT = 8192  # numbers are stored in the order in which games end
BATCH = 256
ASKED = 100_000


def bench_replay(config: Config, *, games: int, appended: int = 25_600) -> dict[str, Any]:
    """Opens a log of so many games whose closed files were moved away, so that their indexes alone are made and read."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as name:
        folder = Path(name)
        segments = _make_indexes(folder, games)
        index_bytes = sum(path.stat().st_size for path in folder.iterdir())
        before, cpu, start = _rss_mb(), time.process_time(), time.perf_counter()
        log = SegmentLog(folder, GAME)
        figures = {
            "games": log.games,
            "segments": segments,
            "index_bytes": index_bytes,
            "open_cpu_s": time.process_time() - cpu,
            "open_s": time.perf_counter() - start,
            "memory_mb": _rss_mb() - before,
        }
        return figures | {"lookup_us": _lookup_us(log, games), **_appending(log, games, appended)}


def _make_indexes(folder: Path, games: int) -> int:
    count = 0
    for count, uids in enumerate(_numbers(games), start=1):
        blocks = -(-len(uids) // BLOCK_GAMES)
        write_index(
            folder,
            SegmentIndex(
                segment=count,
                game=GAME,
                created_ms=0,
                size=len(uids) * 640,
                sha256=hashlib.sha256(str(path_of(folder, count)).encode()).digest(),
                games=len(uids),
                blocks=(BLOCK_GAMES * SAMPLES_PER_GAME,) * blocks,
                pages=pack(uids),
            ),
        )
    return count


def _numbers(games: int) -> Iterator[NDArray[np.uint64]]:
    """Game numbers by segment, in the order in which games end that begin in turn, so many at a time."""
    rng = np.random.default_rng(1)
    waiting = np.empty((2, 0))
    for first in range(0, games + GAMES_IN_FLIGHT, GAMES_PER_SEGMENT):
        fresh = np.arange(first, min(first + GAMES_PER_SEGMENT, games), dtype=np.float64)
        ends = fresh + rng.uniform(0, GAMES_IN_FLIGHT, len(fresh))
        waiting = np.concatenate([waiting, np.stack([ends, fresh])], axis=1)
        over = waiting[0] < first + GAMES_PER_SEGMENT
        if over.any():
            yield waiting[1, over].astype(np.uint64) + np.uint64(1)
        waiting = waiting[:, ~over]


def _lookup_us(log: SegmentLog, games: int) -> float:
    uids = random.Random(1).choices(range(1, games + 1), k=ASKED)
    start = time.process_time()
    assert all(uid in log for uid in uids)
    return (time.process_time() - start) / ASKED * 1e6


def _appending(log: SegmentLog, games: int, appended: int) -> dict[str, float]:
    """CPU and wall time of a game that is stored in batches of `BATCH`."""
    filler = random.Random(1).randbytes(560)
    frames = [encode(SampleEvent(GameRecord(uid, filler), (), "bench", 0)) for uid in range(games + 1, games + 1 + appended)]
    entries = [LogEntry(uid, SAMPLES_PER_GAME, frame) for uid, frame in enumerate(frames, start=games + 1)]
    cpu, start = time.process_time(), time.perf_counter()
    for first in range(0, appended, BATCH):
        log.append(entries[first : first + BATCH])
    figures = {"append_cpu_us": (time.process_time() - cpu) / appended * 1e6, "append_us": (time.perf_counter() - start) / appended * 1e6}
    log.close()
    return figures


def _rss_mb() -> float:
    own = stat_of(os.getpid())
    return own.resident_bytes / (1 << 20) if own else 0.0
