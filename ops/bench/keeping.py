"""What it costs a learner that its store keeps games: CPU-s of taking games in with and without, in turn, in one process.

`python ops/bench/keeping.py --url s3://bucket/prefix`: random games of connect four, read 256 at once from a bus in memory, each read
after the keeper's turn. Of a bucket the client's CPU counts, the server's does not. Without --url, a folder is the store.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from azq import games
from azq.bus.memory import MemoryBus
from azq.config import StoreConfig
from azq.learner.data.intake import BATCH, Intake
from azq.learner.keeping.fetching import Fetcher
from azq.learner.keeping.keeper import Keeper
from azq.ledger import MemoryLedger
from azq.replay.segments import SegmentLog
from azq.replay.window import Window
from azq.store.shelf import open_shelf
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord, SampleEvent

GAME = games.load("connect_four")


def played(uid: int) -> SampleEvent:
    """A random game with random policies."""
    rng, state, policies, actions = np.random.default_rng(uid), GAME.new_initial_state(), [], []
    while not state.is_terminal():
        legal = state.legal_actions()
        policies.append(np.zeros(GAME.num_distinct_actions(), "<f2"))
        policies[-1][legal] = rng.dirichlet(np.ones(len(legal)))
        actions.append(int(rng.choice(legal)))
        state.apply_action(actions[-1])
    plies = len(actions)
    values = rng.uniform(-1, 1, (plies, 1)).astype("<f4").tobytes()
    searched, versions = np.full(plies, 32, "<u2").tobytes(), np.ones(plies, "<u4").tobytes()
    record = GameRecord(uid, np.asarray(actions, "<u2").tobytes(), np.concatenate(policies).tobytes(), values, searched, versions)
    return SampleEvent(record, tuple(state.returns()), "selfplay", 1)


def taken_in(records: list[SampleEvent], url: str) -> tuple[float, int, float]:
    """CPU-s, bytes written to the store, and seconds of a fetch on an empty folder; no store where the URL is empty."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as name:
        folder, bus = Path(name, "run"), MemoryBus()
        ledger = MemoryLedger(bus)
        ledger.create_run(RunRecord("r", b"{}", {}, "", 1))
        lease = ledger.claim(ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id, 1, "w", 1000)
        assert lease is not None
        ledger.adopt(lease, len(records))
        log = SegmentLog(folder / "segments", "connect_four")
        shelf = open_shelf(StoreConfig(url=url), f"runs/r.{time.time_ns()}") if url else None
        keeper = Keeper(shelf, folder, log, 1, StoreConfig().chunk_bytes) if shelf else None
        intake = Intake(
            "r", GAME, bus=bus, ledger=ledger, segments=log, window=Window(GAME, 100_000), consumer="l",
            keeper=keeper, most_held=10_000,
        )  # fmt: skip
        cpu_s = 0.0
        for start in range(0, len(records), BATCH):
            ledger.finish_games(lease, records[start : start + BATCH])
            began_s = time.process_time()
            intake.read()
            if keeper:
                keeper.turn()
            cpu_s += time.process_time() - began_s
        began_s = time.process_time()
        if keeper:
            keeper.finish(60.0)
        intake.settle()
        cpu_s += time.process_time() - began_s
        assert ledger.counts("r").inserted == len(records)
        began_s = time.perf_counter()
        if shelf:
            Fetcher(shelf, Path(name, "other"), 1e9).run()
        return cpu_s, keeper.written_bytes if keeper else 0, time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="")
    parser.add_argument("--games", type=int, default=10_240)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as bucket:
        records = [played(uid) for uid in range(1, asked.games + 1)]
        rounds = [(taken_in(records, ""), taken_in(records, asked.url or f"file://{bucket}")) for _ in range(asked.rounds)]
    each, written = asked.games / 1000, rounds[0][1][1]
    frames = sum(len(encode(record)) for record in records)
    print(
        json.dumps(
            {
                "cpu_s_per_1000_games": statistics.median(without[0] for without, _ in rounds) / each,
                "kept_cpu_s_per_1000_games": statistics.median(kept[0] for _, kept in rounds) / each,
                "ratio": statistics.median(kept[0] / without[0] for without, kept in rounds),
                "more_cpu_s_per_gb": statistics.median(kept[0] - without[0] for without, kept in rounds) / written * 1e9,
                "written_per_byte": written / frames,
                "fetch_s": statistics.median(kept[2] for _, kept in rounds),
                "bytes": written,
            }
        )
    )


if __name__ == "__main__":
    main()
