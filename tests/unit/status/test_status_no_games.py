"""A run without games says so, with the last reason that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reconcile_worlds import view

from azq.ledger.types import JobState, LedgerCounts, RunState, RunView
from azq.status.no_games import EMPTY_GAMES, PATIENCE_S, no_games
from azq.status.summary import RunFacts, summarise
from azq.wire.kinds import Kind
from azq.wire.messages import HistoryPoint, RunRecord

NONE = LedgerCounts(0, 0, 0, 0, 0, 0, 0)
OPEN = replace(NONE, opened=8, open=8)
DIED = view(3, JobState.QUEUED, attempt=3, error="process 9, which held it, died")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ((replace(OPEN, finished=1), 99.0, None, [DIED], "x", False), ""),
        ((replace(OPEN, abandoned=4), 0.0, None, [DIED], "x raised", True), "no game was finished, 4 were abandoned because x raised"),
        ((replace(OPEN, abandoned=4), 0.0, None, [], "", True), "no game was finished, 4 were abandoned because nobody said why"),
        ((OPEN, 0.0, None, [view(1), DIED], "", True), "no game was finished: attempt 2 of job r:3 failed, process 9, which held it, died"),
        ((OPEN, 0.0, None, [replace(DIED, job=view(1, kind=Kind.EVAL).job)], "", False), ""),
        ((OPEN, PATIENCE_S, None, [], "", True), ""),
        ((OPEN, PATIENCE_S - 1, None, [], "", False), ""),
        ((NONE, PATIENCE_S, None, [], "", False), "no game was begun in 15 s: no worker has taken a job of self-play"),
        ((OPEN, PATIENCE_S, None, [], "", False), "no game was finished in 15 s: no position was evaluated"),
        ((replace(OPEN, evaluations=5), 20.0, None, [], "", False), "no game was finished in 20 s; 8 are open, and nothing is"),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, 0, [], "", True), "50 games and no sample: they are over before anybody"),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, 1, [], "", True), ""),
        ((replace(NONE, finished=50, inserted=EMPTY_GAMES), 1.0, None, [], "", True), ""),
        ((replace(NONE, finished=49, inserted=EMPTY_GAMES - 1), 1.0, 0, [], "", True), ""),
    ],
)
def test_the_reason_is_the_last_that_is_known(facts: tuple[LedgerCounts, float, int | None, list[object], str, bool], told: str) -> None:
    *known, evaluating = facts
    found = no_games(*known, evaluating=evaluating)  # type: ignore[arg-type]
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_it_is_a_condition_and_a_figure_of_the_run() -> None:
    run = RunView(RunRecord("r", b"{}", {}, "runs/r", 0), RunState.RUNNING, "", 20_000, 0)
    status = summarise(RunFacts(run, replace(OPEN, abandoned=1), point=HistoryPoint(0), abandoned="apply_action raised"), 5_000, ["other"])
    assert status.conditions == (status.no_games, "other")
    assert status.no_games == "no game was finished, 1 were abandoned because apply_action raised"
