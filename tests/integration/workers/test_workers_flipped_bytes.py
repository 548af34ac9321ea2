"""Bytes flipped at random in copies of what is on the streams: nobody dies, each copy is counted, no game is wrong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from waiting import until
from worker_doubles import RUN, Fleet

from azq.bus.redis import RedisBus
from azq.ledger.types import JobState, RunState
from azq.replay.segments import SegmentLog
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.messages import SampleEvent

COPIES = 60
SEED = 4
LEARNER = f"import sys; from azq.config import load; from workers.learner import main; sys.exit(main(load(), {RUN!r}))"


@pytest.fixture(autouse=True)
def run(fleet: Fleet) -> None:
    fleet.create_run(evaluator="stream", games_in_flight=16)


def flipped(frame: bytes, luck: random.Random) -> bytes:
    """A copy with one to three other bytes."""
    copy = bytearray(frame)
    for place in luck.sample(range(len(frame)), luck.randint(1, 3)):
        copy[place] ^= luck.randint(1, 255)
    return bytes(copy)


@pytest.mark.slow
def test_flipped_bytes_on_every_stream_change_nothing(fleet: Fleet, broker: Any, tmp_path: Path) -> None:
    luck, data = random.Random(SEED), RedisBus(connect(broker.data_url))
    processes = [fleet._spawn(LEARNER), fleet.start_inference(), fleet.start()]
    fleet.send(slice_s=120.0)
    until(lambda: fleet.ledger.counts(RUN).inserted > 10, "first games")
    flips = {keys.samples(RUN): (fleet.bus, 0), keys.eval_stream(RUN): (data, 0)}
    while any(count < COPIES for _, count in flips.values()):
        for stream, (bus, count) in flips.items():
            for entry in bus.after(stream, "0", count=4)[: COPIES - count]:
                bus.publish(stream, flipped(entry.frame, luck))
                flips[stream] = (bus, flips[stream][1] + 1)
    for entry in fleet.bus.newest(keys.weights(RUN), 1) * 5:
        fleet.bus.publish(keys.weights(RUN), flipped(entry.frame, luck))
    until(lambda: fleet.bus.dead_letters() == data.dead_letters() == COPIES, "dead letter of every copy")
    learned = fleet.ledger.counts(RUN).inserted
    until(lambda: fleet.ledger.counts(RUN).inserted > learned + 10, "more games")
    assert all(process.poll() is None for process in processes)
    fleet.ledger.set_run_state(RUN, RunState.PAUSED)
    until(lambda: fleet.ledger.counts(RUN).in_transit == 0 and not leased(fleet), "the end")
    counts = fleet.ledger.counts(RUN)
    assert counts.balanced
    assert counts.duplicates_dropped == counts.abandoned == 0
    assert sorted(stored(tmp_path)) == sorted(set(stored(tmp_path)))
    assert len(stored(tmp_path)) == counts.finished
    data.close()


def leased(fleet: Fleet) -> bool:
    return any(view.state is JobState.LEASED for view in fleet.ledger.jobs(RUN))


def stored(folder: Path) -> list[int]:
    log = SegmentLog(folder / "segments", "tic_tac_toe")
    return [decode(frame, SampleEvent).record.uid for frame in log.tail(1 << 62)]
