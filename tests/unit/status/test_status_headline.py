"""The sentence that says how a run does."""

from __future__ import annotations

from typing import Any

import pytest

from azq.ledger.types import RunState
from azq.ratings.elo import Rating
from azq.status.headline import Situation, headline, not_learning
from azq.status.strength import Standing, headline_kind, trends
from azq.wire.messages import GradeResult

ANCHOR = Rating("uct:100", 0.0, 0.0, 0.0, 40, 20.0)


def sentence(errors: tuple[int, ...] = (), game: str = "connect_four", ratings: tuple[Rating, ...] = (), **facts: Any) -> str:
    grades = [GradeResult(version, 64, 200, wrong, 0, mean_loss=wrong / 1000) for version, wrong in enumerate(errors, 1)][::-1]
    known = trends(game, Standing(grades=tuple(grades), ratings=ratings))
    state, active_s = facts.pop("state", RunState.RUNNING), facts.pop("active_s", 420.0)
    return headline(
        Situation(
            "r", state, active_s, headline_kind(game, known), known, anchored=ANCHOR in ratings, **{"games": 2000, "step": 300, **facts}
        )
    )


def test_better_is_said_with_from_to_elo_and_the_time_left() -> None:
    rated = (Rating("weights:2", 772.0, 700.0, 844.0, 200, 190.0), Rating("weights:1", 0.0, -90.0, 90.0, 40, 20.0), ANCHOR)
    assert (
        sentence((52, 6), ratings=rated, eta_s=240.0)
        == "Learning well: graded errors 26.0% → 3.0% in 7 min; +772 Elo against uct:100; 4 min left"
    )


@pytest.mark.parametrize(
    ("errors", "more", "expected"),
    [
        ((), {"step": 0, "games": 0}, "Starting: no game is finished yet"),
        ((), {"step": 0}, "Starting: 2,000 games so far, training begins soon"),
        ((), {}, "Training: step 300, the first measure of strength comes soon"),
        ((52,), {"active_s": 30.0}, "Training: graded errors 26.0% at v1 in 30 s"),
        ((52, 45), {}, "Training, no clear change yet: graded errors 26.0% → 22.5% in 7 min"),
        ((52, 45), {"active_s": 1000.0}, "Standing still (`azq why r` looks for the cause): graded errors 26.0% → 22.5% in 17 min"),
        ((6, 52), {}, "Getting worse (`azq why r` looks for the cause): graded errors 3.0% → 26.0% in 7 min"),
        ((52, 6), {"trouble": "no game was finished: x"}, "Not learning: no game was finished: x"),
        ((52, 6), {"state": RunState.FINISHED, "eta_s": None}, "Finished: graded errors 26.0% → 3.0% in 7 min"),
        ((), {"state": RunState.PAUSED, "trouble": "x"}, "Paused: 2,000 games in 7 min"),
    ],
)
def test_each_situation_has_its_sentence(errors: tuple[int, ...], more: dict[str, Any], expected: str) -> None:
    assert sentence(errors, **more) == expected


def test_elo_decides_where_the_measure_is_not_clear() -> None:
    rated = (Rating("weights:1", -337.0, -500.0, -174.0, 40, 5.0), Rating("weights:2", -17.0, -120.0, 86.0, 80, 39.0), ANCHOR)
    assert sentence((52, 45), ratings=rated, active_s=90.0).startswith("Learning well: graded errors 26.0% → 22.5% in 90 s; -17 Elo")


def test_elo_is_left_out_until_its_zero_was_met() -> None:
    assert "Elo" not in sentence((52, 6), ratings=(Rating("weights:1", 214.0, 100.0, 328.0, 40, 30.0),))


def test_a_measure_without_interval_is_judged_by_a_tenth() -> None:
    assert sentence((52, 30), "backgammon").startswith("Learning well: equity loss 52.0 millipoints → 30.0 millipoints")
    assert sentence((52, 48), "backgammon").startswith("Training, no clear change yet")


def test_what_a_rule_found_is_said_as_surely_as_it_is_known() -> None:
    assert not_learning("all results are draws", sure=True) == "Not learning: all results are draws"
    assert not_learning("all results are draws", sure=False).startswith("Perhaps not learning")
