"""A game for one in the arena: each plays alone with the same luck, scores stand in the place of Elo."""

from __future__ import annotations

import math
from typing import Any

import pytest
from arena_doubles import Choosing
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.arena.match import deal, play_match
from azq.arena.rating import rate
from azq.arena.scores import score_table
from azq.arena.whole import put_together, split
from azq.stats import sequential_test
from azq.wire.messages import MatchResult, MatchSpec
from azq.wire.parts import together

SHORT = games.load("2048", max_moves=12)


def spec(count: int, **more: Any) -> MatchSpec:
    return MatchSpec("weights:2", "rule", count, 1, 0, 5, **more)


def lowest(state: Any) -> int:
    return int(min(state.legal_actions()))


def highest(state: Any) -> int:
    return int(max(state.legal_actions()))


def played(match: MatchSpec) -> MatchResult:
    return play_match(match, SHORT, Choosing(SHORT, lowest, "weights:2"), Choosing(SHORT, highest, "rule"))


def test_both_play_every_deal_alone_and_equals_score_alike() -> None:
    first, second = Choosing(SHORT, lowest, "a"), Choosing(SHORT, lowest, "b")
    result = play_match(spec(10), SHORT, first, second)
    assert (result.seats, result.games, result.draws) == (1, 10, 10)
    assert (result.points, result.gap_se) == (result.second_points, 0.0)
    assert result.points > 0
    assert sorted(map(tuple, first.asked)) == sorted(map(tuple, second.asked))
    assert len(deal(SHORT, spec(10))) == 20


def test_who_scores_more_with_the_same_luck_has_won() -> None:
    result = played(spec(30))
    assert result.wins + result.draws + result.losses == 30
    assert result.share == result.score == pytest.approx((result.wins + result.draws / 2) / 30)
    assert result.points != result.second_points
    assert 0 < result.gap_se < 100
    assert result.points_se > 0 < result.second_points_se


def test_parts_of_a_match_are_the_whole() -> None:
    whole = played(spec(30))
    joined = together([played(part) for part in split(spec(30), 8)])
    assert (joined.wins, joined.draws, joined.losses) == (whole.wins, whole.draws, whole.losses)
    for name in ("points", "points_se", "second_points", "second_points_se", "gap_se"):
        assert getattr(joined, name) == pytest.approx(getattr(whole, name))


def result_of(first: str, second: str, count: int, points: tuple[float, float], errors: tuple[float, float] = (5.0, 3.0)) -> MatchResult:
    return MatchResult(
        MatchSpec(first, second, count, 1, 0, 0),
        *(first, second, count, 0, 0, 0),
        seats=1,
        points=points[0],
        points_se=errors[0],
        second_points=points[1],
        second_points_se=errors[1],
    )


def test_scores_of_a_player_are_pooled_and_nobody_is_rated() -> None:
    matches = [result_of("weights:1", "rule", 10, (100, 50)), result_of("weights:2", "rule", 30, (200, 70))]
    table = {one.player: one for one in score_table(matches)}
    assert [one.player for one in score_table(matches)] == ["weights:2", "weights:1", "rule"]
    assert (table["rule"].score, table["rule"].games) == (65, 40)
    assert table["weights:1"].high - table["weights:1"].score == pytest.approx(1.959964 * 5.0)
    assert rate(put_together(matches)) == []
    with_seats = MatchResult(MatchSpec("a", "b", 2, 1, 0, 0), "a", "b", 1, 0, 1, 0)
    assert score_table([with_seats]) == []
    assert {rating.player for rating in rate([*matches, with_seats])} == {"a", "b"}


@given(st.lists(st.floats(-1000, 1000), min_size=4, max_size=40), st.data())
def test_pooled_errors_are_those_of_all_games_at_once(scores: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(2, len(scores) - 2))

    def told(values: list[float]) -> tuple[float, float]:
        mean = sum(values) / len(values)
        return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))

    halves = [told(part) for part in (scores[:cut], scores[cut:])]
    lengths = (cut, len(scores) - cut)
    found = score_table([result_of("x", f"y{n}", lengths[n], (mean, 0), (error, 0)) for n, (mean, error) in enumerate(halves)])
    mine = next(one for one in found if one.player == "x")
    mean, error = told(scores)
    assert mine.score == pytest.approx(mean, abs=1e-6)
    assert mine.high - mine.low == pytest.approx(2 * 1.959964 * error, rel=1e-6, abs=1e-6)


def test_a_sequential_test_counts_them_as_two() -> None:
    parts = [played(part) for part in split(spec(24, sprt=(0.0, 50.0, 0.05, 0.05)), 12)]
    (whole,) = put_together(parts[::-1])
    assert whole.test == sequential_test(whole.wins, whole.draws, whole.losses, 0.0, 50.0, 0.05, 0.05, seats=2)


def test_the_rules_of_thumb_beat_chance() -> None:
    from azq.arena.player import Ground
    from azq.arena.players import make_player

    game = games.load("2048", max_moves=150)
    ground: Any = Ground(game, None, None, 1, seed=3)
    result = play_match(spec(6), game, make_player("rule", ground), make_player("random", ground))
    assert result.wins >= 5
    assert result.points > result.second_points + 2 * result.gap_se
