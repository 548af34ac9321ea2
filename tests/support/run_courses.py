"""Runs with a past, over the doubles: history, weights, matches and grades of a run that trained for ten minutes."""

from __future__ import annotations

import msgspec
from memory_broker import MemoryBus, MemoryLedger

from azq.bus.base import Bus
from azq.config import dump_run, parse_run
from azq.status.curves import Course, read_course
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import GradeResult, HistoryPoint, MatchResult, MatchSpec, RunRecord, WeightEvent

CREATED_MS = 1_000_000
EVERY_MS = 5_000
POINTS = 120


def plant_run(ledger: MemoryLedger, bus: Bus, name: str, *, game: str = "connect_four", speed: float = 1.0, **search: object) -> None:
    """A run whose points say: 10 games and `speed` steps each second, 1.5 cores; weights every two minutes, graded and rated."""
    sections = parse_run({"run": {"game": game}, "search": search}, "test")
    ledger.create_run(RunRecord(name, msgspec.json.encode(dump_run(sections)), {}, f"/nowhere/{name}", CREATED_MS))
    for number in range(1, POINTS + 1):
        at_ms, step = CREATED_MS + number * EVERY_MS, round(5 * number * speed)
        cores = {"selfplay": 1.0, "learner": 0.5}
        loss = 2.0 - number / POINTS
        point = HistoryPoint(at_ms, step=step, games=50 * number, loss_policy=loss, loss_value=loss / 2, samples=99, cores=cores)
        bus.publish(keys.history(name), encode(point))
        if number % 24 == 0:
            version = number // 24
            weights = f"weights:{version}"
            bus.publish(keys.weights(name), encode(WeightEvent(name, version, "0" * 64, "file:x", step, at_ms)))
            errors = max(0, 60 - 10 * version)
            bus.publish(
                keys.results(name), encode(GradeResult(version, 64, 200, errors, at_ms, marks=bytes([2] * errors + [1] * (200 - errors))))
            )
            spec, wins = MatchSpec(weights, "uct:100", 40, 64, 4, 0), min(40, 4 + 6 * version)
            bus.publish(
                keys.results(name),
                encode(MatchResult(spec, weights, "uct:100", wins, 0, 40 - wins, at_ms)),
            )


def courses(*runs: dict[str, object]) -> list[Course]:
    """What was recorded of runs that were planted so."""
    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    for settings in runs:
        plant_run(ledger, bus, **settings)  # type: ignore[arg-type]
    return [read_course(ledger, bus, str(settings["name"])) for settings in runs]
