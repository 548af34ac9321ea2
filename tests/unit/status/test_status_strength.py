"""What each game is judged by, and that a measure which does not apply is told nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from azq import games
from azq.arena.rating import Rating, Scored
from azq.arena.whole import put_together
from azq.status.strength import HEADLINES, WITHOUT_ERRORS, Strength, measures, strength
from azq.wire.messages import GradeResult, MatchResult, MatchSpec

GRADE = GradeResult(7, 64, 200, 16, 0, mean_loss=0.0432)
RATED = [Rating("weights:7", 120.0, 60.0, 180.0, 40, 30.0)]


def match(first: str, second: str, wins: int, losses: int, **more: Any) -> MatchResult:
    return MatchResult(MatchSpec(first, second, wins + losses, 64, 0, 0), first, second, wins, 0, losses, 0, **more)


def told(game: str, found: Strength, *matches: MatchResult) -> list[tuple[str, str]]:
    return [(one.name, one.text) for one in measures(game, found, put_together(list(matches)))]


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
    assert told(game, strength([GRADE], RATED, game=game)) == expected


def test_before_anything_is_measured_only_the_headline_is_there_and_says_so() -> None:
    for game, name in (("connect_four", "graded errors"), ("backgammon", "equity loss"), ("2048", "score"), ("hex", "Elo")):
        assert told(game, strength([], [], game=game)) == [(name, "–")]


def test_a_game_without_errors_has_none_anywhere() -> None:
    for game in WITHOUT_ERRORS:
        found = strength([GRADE], [], game=game)
        assert (found.error_share, found.graded_version) == (None, 7)
        assert "errors" not in [one.kind for one in measures(game, found)]


def test_a_rating_that_no_match_moved_is_none_and_one_of_few_games_says_so() -> None:
    assert told("hex", strength([], [Rating("weights:1", 0.0, 0.0, 0.0, 4, 2.0)], game="hex")) == [("Elo", "–")]
    (wide,) = measures("hex", strength([], [Rating("weights:1", 777.0, -558.0, 2112.0, 2, 2.0)], game="hex"))
    assert (wide.text, wide.value, wide.low, wide.high) == ("too few games", 777.0, -558.0, 2112.0)


def test_games_of_points_and_places_are_told_against_the_hardest_that_never_changes() -> None:
    newer = [match("weights:8", "weights:7", 30, 10), match("weights:8", "random", 40, 0, points=5.0, points_se=0.1)]
    newer += [match("weights:8", "rule", 22, 18, points=1.25, points_se=0.5), match("weights:7", "rule", 1, 39)]
    assert told("blob", Strength(), *newer) == [("points a game", "+1.25 ±0.98 against rule")]
    assert told("beasty_bar", Strength(), *newer)[0] == ("first places", "55% ±15% against rule")
    assert told("connect_four", Strength(), *newer) == [("graded errors", "–")]


def test_a_game_for_one_is_told_by_its_score() -> None:
    found = strength([], [], [Scored("weights:7", 2048.0, 2000.0, 2096.0, 40)], "2048")
    assert told("2048", found) == [("score", "2,048 ±48")]
    assert told("mine.py:Game", found) == [("score", "2,048 ±48")]


def test_the_tables_know_only_games_that_are_there_and_whose_rules_agree() -> None:
    assert {*HEADLINES, *WITHOUT_ERRORS} <= {*games.names()}
    for game in games.names():
        rules = games.load(game)
        certain = rules.num_players() <= 2 and not rules.is_chance() and not rules.is_hidden()
        assert certain == (game not in WITHOUT_ERRORS), game
