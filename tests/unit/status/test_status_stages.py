"""The stages of a run, from when it was created, first seen at work and ended, and from its pauses."""

from __future__ import annotations

import pytest

from azq.ledger.types import RunState, RunView
from azq.status.stages import Evaluated, RunFirsts, RunPause, stages_of
from azq.wire.messages import RunRecord

RUNNING, PAUSED, FINISHED, FAILED = RunState
NOT_YET = Evaluated(0)
SEEN = RunFirsts(1_000, 3_000)


def told(state, changed_ms, firsts, now_ms, evaluated=NOT_YET, pauses=()):
    """(name, begin, end, seconds) of each stage of a run that was created at 500."""
    view = RunView(RunRecord("r", b"{}", {}, "", 500), state, "", 0, changed_ms, pauses)
    return [(stage.name, stage.began_ms, stage.ended_ms, stage.lasted_s) for stage in stages_of(view, firsts, evaluated, now_ms)]


@pytest.mark.parametrize(
    ("firsts", "expected"),
    [
        (RunFirsts(), [("spin-up", 500, None, 8.5)]),
        (RunFirsts(1_000), [("spin-up", 500, 1_000, 0.5), ("fill", 1_000, None, 8.0)]),
        (SEEN, [("spin-up", 500, 1_000, 0.5), ("fill", 1_000, 3_000, 2.0), ("main", 3_000, None, 6.0)]),
        (RunFirsts(3_000, 3_000), [("spin-up", 500, 3_000, 2.5), ("main", 3_000, None, 6.0)]),
        (RunFirsts(0, 3_000), [("main", 3_000, None, 6.0)]),
    ],
    ids=["nothing yet", "a game", "a step", "both at one look", "its beginning is not kept any more"],
)
def test_a_run_at_work_is_in_the_last_stage_that_began(firsts, expected):
    assert told(RUNNING, 500, firsts, 9_000) == expected


@pytest.mark.parametrize("over", [FINISHED, FAILED])
def test_the_end_closes_what_had_begun_by_then(over):
    assert told(over, 2_000, SEEN, 9_000) == [("spin-up", 500, 1_000, 0.5), ("fill", 1_000, 2_000, 1.0)]
    assert told(over, 600, RunFirsts(), 9_000) == [("spin-up", 500, 600, 0.1)]
    assert told(over, 500, SEEN, 9_000) == []
    assert told(over, 4_000, SEEN, 9_000)[-1] == ("main", 3_000, 4_000, 1.0)


@pytest.mark.parametrize(
    ("evaluated", "expected"),
    [
        (Evaluated(4_000), ("main", 3_000, 4_000, 1.0)),
        (Evaluated(4_001), ("final", 4_000, 4_001, 0.001)),
        (Evaluated(3_500, goes_on=True), ("final", 4_000, None, 5.0)),
        (Evaluated(6_000, goes_on=True), ("final", 4_000, None, 5.0)),
    ],
)
def test_the_final_stage_is_that_of_results_after_the_end(evaluated, expected):
    assert told(FINISHED, 4_000, SEEN, 9_000, evaluated)[-1] == expected
    assert told(RUNNING, 500, SEEN, 9_000, evaluated)[-1][0] == "main"


def test_pauses_belong_to_the_stages_they_fall_in_and_do_not_count():
    pauses = ((500, 700), (2_500, 3_500), (4_000, 5_000))
    view = RunView(RunRecord("r", b"{}", {}, "", 500), PAUSED, "", 0, 8_000, pauses)
    up, fill, main = stages_of(view, SEEN, NOT_YET, 9_000)
    assert (up.lasted_s, up.pauses) == (0.3, (RunPause(500, 700),))
    assert (fill.lasted_s, fill.pauses) == (1.5, (RunPause(2_500, 3_000),))
    assert main.pauses == (RunPause(3_000, 3_500), RunPause(4_000, 5_000), RunPause(8_000, None))
    assert (main.lasted_s, main.ended_ms) == (3.5, None)


def test_a_pause_that_only_touches_a_stage_is_not_its():
    view = RunView(RunRecord("r", b"{}", {}, "", 500), RUNNING, "", 0, 500, ((800, 1_000), (3_000, 3_200)))
    assert [stage.pauses for stage in stages_of(view, SEEN, NOT_YET, 9_000)] == [(RunPause(800, 1_000),), (), (RunPause(3_000, 3_200),)]


def test_what_came_between_an_end_and_going_on_is_a_pause_of_main():
    assert told(RUNNING, 8_000, SEEN, 9_000, Evaluated(5_000), ((4_000, 8_000),))[-1] == ("main", 3_000, None, 2.0)


def test_a_clock_that_was_set_back_makes_no_negative_time():
    assert told(RUNNING, 500, RunFirsts(), 100) == [("spin-up", 500, None, 0.0)]
