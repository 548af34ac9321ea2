"""Rounds in parts, final rounds, when a round is due, and sequential tests that make parts needless."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace
from reconcile_worlds import EMPTY, NOW, SECTIONS, beat, decide, view

from azq.config import ArenaConfig, RunSections
from azq.ledger.types import JobState, JobView, RunState
from azq.ratings.matches import put_together
from azq.status.state import ObservedRun
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import EvalRound, GradeSpec, MatchResult, MatchSpec
from azq.wire.parts import whole_of
from daemon.decide.actions import CancelQueued, EnqueueEval

WORKERS = (beat("s", "selfplay.cpu"), beat("e", "eval.cpu"))
BUSY = (view(1), view(2, JobState.QUEUED))
DUE = ObservedRun(EMPTY, jobs=BUSY, weight_version=9, weight_step=900, round=EvalRound(4, NOW - 120_000))
LAST = ObservedRun(EMPTY, weight_version=9, round=EvalRound(9, NOW - 500_000))


def with_arena(**changes: object) -> RunSections:
    return SECTIONS.model_copy(update={"arena": ArenaConfig.model_validate(SECTIONS.arena.model_dump() | changes)})


def asked(seen: ObservedRun, state: RunState = RunState.RUNNING, **changes: object) -> EnqueueEval | None:
    found = [each for each in decide(seen, WORKERS, sections=with_arena(**changes), state=state) if isinstance(each, EnqueueEval)]
    assert len(found) <= 1
    return found[0] if found else None


def eval_job(number: int, spec: MatchSpec | GradeSpec, state: JobState = JobState.QUEUED) -> JobView:
    found = view(number, state, kind=Kind.EVAL)
    return dataclasses.replace(found, job=replace(found.job, payload=encode(spec)))


def test_a_long_match_is_handed_out_in_parts_and_its_test_with_them() -> None:
    action = asked(DUE, games=201, sprt=[0, 20], opponents=["latest", "previous", "uct:100"])
    assert action is not None
    parts = [spec for spec in action.specs if isinstance(spec, MatchSpec)]
    assert [(part.second, part.first_game, part.games) for part in parts] == [
        (opponent, first, games) for opponent in ("weights:4", "uct:100") for first, games in ((0, 67), (67, 67), (134, 67))
    ]
    assert len({whole_of(part) for part in parts}) == 2
    assert {part.sprt for part in parts} == {(0.0, 20.0, 0.05, 0.05)}
    assert action.noted == EvalRound(9, NOW, 900)


def test_tabs_get_a_match_as_one() -> None:
    sections = with_arena(games=250)
    sections = sections.model_copy(update={"volunteers": sections.volunteers.model_copy(update={"kinds": ("selfplay", "eval")})})
    tabs = beat("g", "selfplay.browser", "eval.browser")
    seen = dataclasses.replace(DUE, jobs=(*BUSY, *(view(n, tag="browser") for n in (3, 4))))
    [action] = [each for each in decide(seen, (*WORKERS, tabs), sections=sections) if isinstance(each, EnqueueEval)]
    assert [(match.games, match.of_games) for match in action.for_tabs] == [(250, 0)]


def test_a_round_keeps_its_seed_whoever_asks_for_it() -> None:
    for seed, first in ((3, 3_009_090), (2**62, (2**62 * 1_000_003 + 9 * 1_009) % 2**63)):
        sections = with_arena(games=8)
        sections = sections.model_copy(update={"run": sections.run.model_copy(update={"seed": seed})})
        [action] = [each for each in decide(DUE, WORKERS, sections=sections) if isinstance(each, EnqueueEval)]
        assert [spec.seed for spec in action.specs] == [seed, first, first + 1]  # the positions that are graded stay the same
    assert asked(LAST, RunState.FINISHED) is None, "its last weights had their round"


@pytest.mark.parametrize(("positions", "graded"), [(0, []), (1, [1]), (400, [50])])
def test_a_run_begins_with_a_few_positions(positions: int, graded: list[int]) -> None:
    action = asked(dataclasses.replace(DUE, weight_version=1, round=EvalRound(0, 0)), grade_positions=positions)
    assert [spec.positions for spec in (action.specs if action else ()) if isinstance(spec, GradeSpec)] == graded


@pytest.mark.parametrize(
    ("changes", "waited_ms", "steps", "due"),
    [
        ({"every_s": 1}, 1000, 0, True),
        ({"every_s": 1}, 999, 0, False),
        ({"every_s": 1}, 0, 0, False),
        ({"every_s": 1}, -1, 0, True),  # the clock was set back
        ({"every_s": 0, "every_steps": 1}, 1, 1, True),
        ({"every_s": 0, "every_steps": 1}, 9999, 0, False),
    ],
)
def test_a_round_is_due_when_its_time_or_its_steps_are_over(changes: dict[str, Any], waited_ms: int, steps: int, due: bool) -> None:
    seen = dataclasses.replace(DUE, round=EvalRound(4, NOW - waited_ms, DUE.weight_step - steps))
    assert (asked(seen, **changes) is not None) is due


@pytest.mark.parametrize(
    ("active_s", "before_s", "due"),
    [
        (19, 9, False),
        (20, 9, True),
        (20, 0, True),
        (39, 20, False),
        (40, 20, True),
        (80, 41, False),
        (82, 41, True),
        (599, 480, False),
        (600, 480, True),
    ],
)
def test_rounds_come_at_doubling_times_up_to_the_configured_pause(active_s: int, before_s: int, due: bool) -> None:
    last = EvalRound(4, NOW - 1000 * (active_s - before_s)) if before_s else EvalRound(4, 0)
    seen = dataclasses.replace(DUE, active_ms=1000 * active_s, round=last)
    assert (asked(seen, every_s=120) is not None) is due


def test_parts_of_a_decided_match_are_dropped_and_nothing_else() -> None:
    action = asked(DUE, games=300, sprt=[0, 20])
    assert action is not None
    parts = [spec for spec in action.specs if isinstance(spec, MatchSpec)]
    first, others = parts[0], parts[3:]
    jobs = (
        eval_job(11, parts[1]),
        eval_job(12, parts[2], JobState.LEASED),
        *(eval_job(20 + n, each) for n, each in enumerate(others)),
        eval_job(30, GradeSpec(9, 5, 8, 1)),
    )
    for wins, dropped in ((100, ["r:11"]), (0, ["r:11"]), (51, [])):
        matches = put_together([MatchResult(first, first.first, first.second, wins, 0, 100 - wins, 1)])
        seen = dataclasses.replace(DUE, jobs=(*BUSY, *jobs), matches=tuple(matches))
        found = decide(seen, WORKERS, sections=with_arena(sprt=[0, 20]))
        assert [each.job_id for each in found if isinstance(each, CancelQueued)] == dropped


def test_a_round_waits_for_evaluations_under_way_but_for_no_trial_of_a_promotion() -> None:
    match = MatchSpec("weights:9", "uct:100", 100, 8, 0, 1, 100, 1000)
    assert asked(dataclasses.replace(DUE, jobs=(*BUSY, eval_job(4, match, JobState.LEASED)))) is None
    assert asked(dataclasses.replace(DUE, jobs=(*BUSY, eval_job(4, replace(match, trial=True), JobState.LEASED)))) is not None


def test_bounds_that_decide_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="elo0 comes first"):
        with_arena(sprt=[10, 10])
