"""How well a run plays, by its game's measure and in one sentence, and what studies reported."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from rest_site import RestSite

from azq import games
from azq.ledger.types import RunState
from azq.ratings.elo import Rating, Scored
from azq.ratings.matches import put_together
from azq.status.results import MOST_TRIALS, StudyReport, TrialReport
from azq.status.strength import (
    HEADLINES,
    WITHOUT_ERRORS,
    Situation,
    Standing,
    headline,
    headline_kind,
    measures,
    not_learning,
    strength,
    trends,
)
from azq.wire.messages import GradeResult, MatchResult, MatchSpec

GRADE = GradeResult(7, 64, 200, 16, 0, mean_loss=0.0432)
RATED = [Rating("weights:7", 120.0, 60.0, 180.0, 40, 30.0)]


def match(first: str, second: str, wins: int, losses: int, **more: Any) -> MatchResult:
    return MatchResult(MatchSpec(first, second, wins + losses, 64, 0, 0), first, second, wins, 0, losses, 0, **more)


def texts(game: str, *matches: MatchResult, **facts: Any) -> list[tuple[str, str]]:
    known = trends(game, Standing(tuple(put_together(list(matches))), **facts))
    return [(measure.name, measure.text) for measure in measures(game, known)]


@pytest.mark.parametrize(
    ("game", "expected"),
    [
        ("connect_four", [("graded errors", "8.0%"), ("Elo", "+120 ±60")]),
        ("backgammon", [("equity loss", "43.2 millipoints"), ("Elo", "+120 ±60")]),
        ("othello", [("graded errors", "8.0%"), ("Elo", "+120 ±60")]),
        ("beasty_bar", [("first places", "–"), ("Elo", "+120 ±60")]),
    ],
)
def test_a_game_is_judged_by_its_own_measure_first(game: str, expected: list[tuple[str, str]]) -> None:
    assert texts(game, grades=[GRADE], ratings=RATED) == expected


def test_before_anything_is_measured_only_the_headline_is_there_and_says_so() -> None:
    for game, name in (("connect_four", "graded errors"), ("backgammon", "equity loss"), ("2048", "score"), ("hex", "Elo")):
        assert texts(game) == [(name, "–")]


def test_a_game_without_errors_has_none_anywhere() -> None:
    for game in WITHOUT_ERRORS:
        found = strength(Standing(grades=[GRADE]), game)
        assert (found.error_share, found.graded_version) == (None, 7)
        assert "errors" not in trends(game, Standing(grades=(GRADE,)))


def test_a_rating_that_no_match_moved_is_none_and_one_of_few_games_says_so() -> None:
    assert texts("hex", ratings=[Rating("weights:1", 0.0, 0.0, 0.0, 4, 2.0)]) == [("Elo", "–")]
    (wide,) = measures("hex", trends("hex", Standing(ratings=(Rating("weights:1", 777.0, -558.0, 2112.0, 2, 2.0),))))
    assert (wide.text, wide.value, wide.low, wide.high) == ("too few games", 777.0, -558.0, 2112.0)


def test_games_of_points_and_places_are_told_against_the_hardest_that_never_changes() -> None:
    newer = [match("weights:8", "weights:7", 30, 10), match("weights:8", "random", 40, 0, points=5.0, points_se=0.1)]
    newer += [match("weights:8", "rule", 22, 18, points=1.25, points_se=0.5), match("weights:7", "rule", 1, 39)]
    assert texts("blob", *newer) == [("points a game", "+1.25 ±0.98 against rule")]
    assert texts("beasty_bar", *newer)[0] == ("first places", "55% ±15% against rule")
    assert texts("connect_four", *newer) == [("graded errors", "–")]


def test_a_game_for_one_is_told_by_its_score() -> None:
    scores = [Scored("weights:7", 2048.0, 2000.0, 2096.0, 40)]
    assert texts("2048", scores=scores) == [("score", "2,048 ±48")]
    assert texts("mine.py:Game", scores=scores) == [("score", "2,048 ±48")]


def test_the_tables_know_only_games_that_are_there_and_whose_rules_agree() -> None:
    assert {*HEADLINES, *WITHOUT_ERRORS} <= {*games.names()}
    for game in games.names():
        rules = games.load(game)
        certain = rules.num_players() <= 2 and not rules.is_chance() and not rules.is_hidden()
        assert certain == (game not in WITHOUT_ERRORS), game


@pytest.fixture
def site() -> TestClient:
    return RestSite().http


def report(name: str = "rates", trials: int = 3) -> dict[str, object]:
    rows = [TrialReport(number=each, state="complete", value=each / 10, settings={"network.blocks": each}) for each in range(trials)]
    told = StudyReport(study=name, game="connect_four", metric="errors", best=rows[0] if rows else None, trials=rows, until="games=9")
    return told.model_dump(mode="json")


def test_the_last_word_of_each_study_is_kept(site: TestClient) -> None:
    assert site.get("/v1/studies").json() == []
    for trials in (1, 3):
        assert site.put("/v1/studies/rates", json=report(trials=trials)).status_code == 204
    assert site.put("/v1/studies/other", json=report("other", 0)).status_code == 204
    listed = {row["study"]: row["best"] and row["best"]["value"] for row in site.get("/v1/studies").json()}
    assert listed == {"rates": 0.0, "other": None}
    assert all("trials" not in row for row in site.get("/v1/studies").json())
    shown = site.get("/v1/studies/rates").json()
    assert [row["settings"] for row in shown["trials"]] == [{"network.blocks": each} for each in range(3)]
    assert shown["sent_ms"] > 0


def test_what_is_no_report_of_the_study_is_refused(site: TestClient) -> None:
    assert "other" in site.put("/v1/studies/rates", json=report("other")).json()["detail"]
    many = {**report(), "trials": [{"number": 0, "state": "complete"}] * (MOST_TRIALS + 1)}
    assert site.put("/v1/studies/rates", json=many).status_code == 422
    assert site.put("/v1/studies/a b", json=report("a b")).status_code == 422
    assert site.put("/v1/studies/rates", json={**report(), "colour": "red"}).status_code == 422
    assert site.get("/v1/studies/rates").status_code == 404


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
        ((52, 30, 8, 6), {"state": RunState.FINISHED}, "Finished: graded errors 26.0% → 3.0% in 7 min; still improving since v2"),
        ((52, 8, 7, 6, 6), {"state": RunState.PAUSED}, "Paused: graded errors 26.0% → 3.0% in 7 min; no clear change since v3"),
        ((52, 6, 7, 26), {"state": RunState.FAILED}, "Failed: graded errors 26.0% → 13.0% in 7 min; worse since v2"),
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
