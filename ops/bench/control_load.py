"""What a finished game costs the control plane: CPU, commands and bytes of adopting, journaling, finishing and inserting games.

Games of connect four's sizes, taken through the ledger on an embedded broker in the calls that a self-play worker and a learner make.

    ops/bench/control_load.py [--plies 30] [--games 4096] [--owner]

Worker and learner are users with rights of their own, which the server checks key by key; with --owner both may do everything.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import redis

from azq.actor.lease import RECORDS_PER_CALL
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.config import RunSections
from azq.host.users import user_url
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.ledger.types import Lease
from azq.wire import keys
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, SampleEvent

ACTIONS, VALUES = 7, 1
RUN = "load"
FINISHED_PER_CALL = 16  # games that end in one turn of a worker's loop


def record(uid: int, plies: int) -> GameRecord:
    """A game of so many plies; the bytes do not matter, their number does."""
    return GameRecord(uid, bytes(2 * plies), bytes(2 * ACTIONS * plies), bytes(4 * VALUES * plies), bytes(2 * plies), bytes(4 * plies))


def cost(client: redis.Redis, work: Callable[[], None], games: int) -> dict[str, float]:
    """What the server spent on `work`, for each of its games."""
    before = client.info("cpu") | client.info("stats")
    work()
    after = client.info("cpu") | client.info("stats")
    spent = {name: float(after[name]) - float(before[name]) for name in ("used_cpu_user", "used_cpu_sys", "total_net_input_bytes")}
    return {
        "cpu_us": 1e6 * (spent["used_cpu_user"] + spent["used_cpu_sys"]) / games,
        "bytes_in": spent["total_net_input_bytes"] / games,
    }


def measure(client: redis.Redis, worker: redis.Redis, learner: redis.Redis, games: int, plies: int) -> dict[str, dict[str, float]]:
    """Every step of a game's life, apart. `client`: the owner's."""
    ledger = Ledger(client)
    sections = RunSections()
    ledger.create_run(record_of(RUN, sections))
    job = ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=games, slice_s=600.0))
    ledger = Ledger(worker)
    lease = ledger.claim(job.job.job_id, job.attempt, "load", 600.0)
    assert lease is not None, "the job is this script's own"
    open_games: list[GameRecord] = []
    figures = {"adopt": cost(client, lambda: open_games.extend(_adopt(ledger, lease, games)), games)}
    halfway = [record(game.uid, plies // 2) for game in open_games]
    figures["journal"] = cost(client, lambda: _each(halfway, RECORDS_PER_CALL, lambda some: ledger.journal(lease, some)), games)
    done = [SampleEvent(record(game.uid, plies), (1.0, -1.0), "load", 1) for game in open_games]
    figures["finish"] = cost(client, lambda: _each(done, FINISHED_PER_CALL, lambda some: ledger.finish_games(lease, some)), games)
    figures["memory_per_waiting_game"] = {"bytes": _memory_of_samples(client) / games}
    figures["insert"] = cost(client, lambda: _insert(Ledger(learner), RedisBus(learner), games), games)
    return figures


def _adopt(ledger: Ledger, lease: Lease, games: int) -> list[GameRecord]:
    taken: list[GameRecord] = []
    while len(taken) < games:
        taken += ledger.adopt(lease, min(RECORDS_PER_CALL, games - len(taken)))
    return taken


def _each(items: list, size: int, call: Callable[[list], object]) -> None:  # type: ignore[type-arg]
    for begin in range(0, len(items), size):
        call(items[begin : begin + size])


def _insert(ledger: Ledger, bus: RedisBus, games: int) -> None:
    inserted = 0
    while inserted < games:
        entries = bus.read([keys.samples(RUN)], keys.LEARNER_GROUP, "load", count=256, block_ms=0)
        inserted += len(entries)
        ledger.record_inserted(RUN, inserted, 0, ack=[entry.id for entry in entries])


def _memory_of_samples(client: redis.Redis) -> float:
    size = client.memory_usage(keys.samples(RUN), samples=0)
    return float(size or 0)


def main() -> None:
    """Measures and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=4096)
    parser.add_argument("--plies", type=int, default=30)
    parser.add_argument("--owner", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder:
        server = EmbeddedServer("control", Path(folder) / "control")
        server.start()
        try:
            worker, learner = [connect(server.url if asked.owner else user_url(server.url, role)) for role in ("worker", "learner")]
            with connect(server.url) as client, worker, learner:
                figures = measure(client, worker, learner, asked.games, asked.plies)
        finally:
            server.stop()
    print(
        json.dumps(
            {"plies": asked.plies, **{step: {name: round(value, 1) for name, value in found.items()} for step, found in figures.items()}}
        )
    )


if __name__ == "__main__":
    main()
