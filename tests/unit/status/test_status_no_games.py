"""A run without games says so, with the last reason that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_worlds import World

from azq.bus.memory import MemoryBus
from azq.ledger.memory import MemoryLedger
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.status.no_games import EMPTY_GAMES, PATIENCE_S, no_games
from azq.status.observe import gather
from azq.status.summary import RunFacts, summarise
from azq.wire.messages import HistoryPoint, RunRecord

NONE = LedgerCounts(0, 0, 0, 0, 0, 0, 0)
OPEN = replace(NONE, opened=8, open=8)
DIED = "job r:3 failed, process 9, which held it, died"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ((replace(OPEN, finished=1), 99.0, None, DIED, "x", False), ""),
        ((replace(OPEN, abandoned=4), 0.0, None, DIED, "x raised", True), "no game was finished, 4 were abandoned because x raised"),
        ((replace(OPEN, abandoned=4), 0.0, None, "", "", True), "no game was finished, 4 were abandoned because nobody said why"),
        ((OPEN, 0.0, None, DIED, "", True), f"no game was finished: {DIED}"),
        ((OPEN, PATIENCE_S, None, "", "", True), ""),
        ((OPEN, PATIENCE_S - 1, None, "", "", False), ""),
        ((NONE, PATIENCE_S, None, "", "", False), "no game was begun in 15 s: no worker has taken a job of self-play"),
        ((OPEN, PATIENCE_S, None, "", "", False), "no game was finished in 15 s: no position was evaluated"),
        ((replace(OPEN, evaluations=5), 20.0, None, "", "", False), "no game was finished in 20 s; 8 are open, and nothing is"),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, 0, "", "", True), "50 games and no sample: they are over before anybody"),
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
    bus = MemoryBus()
    world = World(lambda clock: MemoryLedger(bus, clock_ms=clock), bus)
    lease = world.lease()
    world.ledger.adopt(lease, 1)
    assert gather(world.ledger, bus, "r").failed == ""
    world.ledger.fail(lease, "process 9, which held it, died")
    assert gather(world.ledger, bus, "r").failed == "job r:1 failed, process 9, which held it, died"
