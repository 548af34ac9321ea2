"""Who dies again and again, and why a run has no games."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from ledger_worlds import World
from memory_broker import MemoryBus

from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.status.conditions import (
    EMPTY_AFTER_S,
    EMPTY_GAMES,
    FEWEST,
    PATIENCE_S,
    WITHIN_S,
    CrashLoop,
    DeathLog,
    Died,
    crash_loops,
    no_games,
    publish_death,
)
from azq.status.observe import gather
from azq.status.summary import RunFacts, summarise
from azq.wire import keys
from azq.wire.machines import ProcessDeath
from azq.wire.messages import HistoryPoint, RunRecord

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
    assert str(loop).endswith("its end was not seen; its manager on box has the log")


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


def test_what_is_told_is_read_oldest_first_and_bytes_of_others_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, read_from = MemoryBus(), []
    after = bus.after
    monkeypatch.setattr(bus, "after", lambda stream, last_id, **options: read_from.append(last_id) or after(stream, last_id, **options))
    for pid in (1, 2, 3):
        publish_death(bus, msgspec.structs.replace(DEATH, pid=pid))
    bus.publish(keys.DEATHS, b"rubbish")
    log = DeathLog(bus)
    deaths = log.read()
    assert [one.process.pid for one in deaths] == [1, 2, 3]
    (loop,) = crash_loops(deaths, deaths[-1].at_ms)
    assert loop == CrashLoop("learner", "box", "first", 3, loop.over_s, HUNG, DEATH.log)
    bus.publish(keys.DEATHS, b"rubbish")
    publish_death(bus, msgspec.structs.replace(DEATH, pid=4))
    for _ in range(2):
        assert [one.process.pid for one in log.read()] == [1, 2, 3, 4]
    assert "0" not in read_from[1:], "each look reads what is new"
    assert len(set(read_from[1:])) == 2


NONE = LedgerCounts(0, 0, 0, 0, 0, 0, 0)
OPEN = replace(NONE, opened=8, open=8)
DIED = "job r:3 failed, process 9, which held it, died"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ((replace(OPEN, finished=1), 99.0, None, DIED, "x", False), ""),
        ((replace(OPEN, abandoned=4), 0.0, None, DIED, "x raised", True), "no game was finished, 4 were abandoned because x raised"),
        ((replace(OPEN, abandoned=4), 0.0, None, "", "", True), "no game was finished, 4 were abandoned because of an unknown cause"),
        ((OPEN, 0.0, None, DIED, "", True), f"no game was finished: {DIED}"),
        ((OPEN, PATIENCE_S, None, "", "", True), ""),
        ((OPEN, PATIENCE_S - 1, None, "", "", False), ""),
        ((NONE, PATIENCE_S, None, "", "", False), "no game was begun in 15 s: no worker has taken a job of self-play"),
        ((OPEN, PATIENCE_S, None, "", "", False), "no game was finished in 15 s: no position was evaluated"),
        ((replace(OPEN, evaluations=5), 20.0, None, "", "", False), "no game was finished in 20 s; 8 are open, and nothing is"),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), EMPTY_AFTER_S, 0, "", "", True), "50 games and no sample: they are over"),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), EMPTY_AFTER_S - 1, 0, "", "", True), ""),  # of a random opening
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, 1, "", "", True), ""),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, None, "", "", True), ""),
        ((replace(NONE, finished=49, inserted=EMPTY_GAMES - 1), 1.0, 0, "", "", True), ""),
    ],
)
def test_the_reason_is_the_last_that_is_known(facts: tuple[LedgerCounts, float, int | None, str, str, bool], told: str) -> None:
    *known, evaluating = facts
    found = no_games(*known, evaluating=evaluating)  # type: ignore[arg-type]
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_it_is_a_condition_and_a_figure_of_the_run() -> None:
    run = RunView(RunRecord("r", b"{}", {}, "runs/r", 0), RunState.RUNNING, "", 20_000, 0)
    status = summarise(RunFacts(run, replace(OPEN, abandoned=1), point=HistoryPoint(0), abandoned="apply_action raised"), 5_000, ["other"])
    assert status.conditions == (status.no_games, "other")
    assert status.no_games == "no game was finished, 1 were abandoned because apply_action raised"


def test_the_newest_failure_of_self_play_is_found_among_a_runs_events() -> None:
    world = World()
    bus, lease = world.bus, world.lease()
    world.ledger.adopt(lease, 1)
    assert gather(world.ledger, bus, "r").failed == ""
    world.ledger.fail(lease, "process 9, which held it, died")
    assert gather(world.ledger, bus, "r").failed == "job r:1 failed, process 9, which held it, died"
