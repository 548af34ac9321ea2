"""Processes that die again and again: when that is a condition, and its words."""

from __future__ import annotations

import msgspec
import pytest

from azq.bus.base import Entry
from azq.bus.memory import MemoryBus
from azq.status.deaths import FEWEST, WITHIN_S, CrashLoop, DeathLog, Died, crash_loops, tell
from azq.wire import keys
from azq.wire.machines import ProcessDeath

HUNG = "SIGKILL, no sign of life for 10 s"
DEATH = ProcessDeath("learner", "box", 7, "first", HUNG, "/runs/first/logs/learner.log")
NOW_MS = 10_000_000


def died(*ages_s: float, death: ProcessDeath = DEATH) -> list[Died]:
    return [Died(NOW_MS - int(age_s * 1000), death) for age_s in ages_s]


def test_a_crash_loop_is_told_with_its_cause_and_its_log() -> None:
    (loop,) = crash_loops(died(190, 120, 60, 10), NOW_MS)
    assert str(loop) == "learner died 4 times in 3 min: SIGKILL, no sign of life for 10 s; log box:/runs/first/logs/learner.log"
    assert "3 times in 42 s" in str(crash_loops(died(52, 20, 10), NOW_MS)[0])


def test_whose_end_nobody_saw_has_the_cause_of_a_death_that_was_seen() -> None:
    unseen = msgspec.structs.replace(DEATH, cause="", log="")
    assert crash_loops([*died(60, 50), *died(5, death=unseen)], NOW_MS)[0].cause == HUNG
    (loop,) = crash_loops(died(9, 8, 7, death=unseen), NOW_MS)
    assert str(loop).endswith("nobody saw it end; its manager on box has the log")


@pytest.mark.parametrize(
    "deaths",
    [
        died(5, 4),
        died(WITHIN_S + 1, 4, 3),  # the first is long ago
        [Died(NOW_MS, msgspec.structs.replace(DEATH, name=f"inference-{number}")) for number in range(FEWEST)],
        [Died(NOW_MS, msgspec.structs.replace(DEATH, host=f"box{number}")) for number in range(FEWEST)],
        [Died(NOW_MS, msgspec.structs.replace(DEATH, run=f"run{number}")) for number in range(FEWEST)],
    ],
)
def test_few_deaths_and_those_of_different_processes_are_none(deaths: list[Died]) -> None:
    assert crash_loops(deaths, NOW_MS) == ()


def test_a_run_hears_of_its_own_processes_and_of_those_that_work_for_all() -> None:
    deaths = [*died(3, 2, 1), *died(3, 2, 1, death=msgspec.structs.replace(DEATH, name="daemon", run=""))]
    assert [loop.name for loop in crash_loops(deaths, NOW_MS, "first")] == ["daemon", "learner"]
    assert [loop.name for loop in crash_loops(deaths, NOW_MS, "second")] == ["daemon"]


class AskedBus(MemoryBus):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def after(self, stream: str, last_id: str, **options: int) -> list[Entry]:
        self.asked.append(last_id)
        return super().after(stream, last_id, **options)


def test_what_is_told_is_read_oldest_first_and_bytes_of_others_are_passed_over() -> None:
    bus = AskedBus()
    for pid in (1, 2, 3):
        tell(bus, msgspec.structs.replace(DEATH, pid=pid))
    bus.publish(keys.DEATHS, b"rubbish")
    log = DeathLog(bus)
    deaths = log.read()
    assert [one.told.pid for one in deaths] == [1, 2, 3]
    (loop,) = crash_loops(deaths, deaths[-1].at_ms)
    assert loop == CrashLoop("learner", "box", "first", 3, loop.over_s, HUNG, DEATH.log)
    bus.publish(keys.DEATHS, b"rubbish")
    tell(bus, msgspec.structs.replace(DEATH, pid=4))
    for _ in range(2):
        assert [one.told.pid for one in log.read()] == [1, 2, 3, 4]
    assert "0" not in bus.asked[1:], "each look reads what is new"
    assert len(set(bus.asked[1:])) == 2
