"""Ratings: order, intervals, anchors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from arena_doubles import Choosing
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from azq import games
from azq.arena.match import deal, play_match
from azq.ratings.elo import Rating, choose_anchor, rate, score_table
from azq.ratings.matches import put_together, split
from azq.stats import sequential_test
from azq.wire.messages import MatchResult, MatchSpec
from azq.wire.parts import together


def match(first: str, second: str, wins: int, draws: int, losses: int) -> MatchResult:
    spec = MatchSpec(first, second, wins + draws + losses, 64, 4, 0)
    return MatchResult(spec, first, second, wins, draws, losses, 0)


def by_name(results: list[MatchResult]) -> dict[str, Rating]:
    return {rating.player: rating for rating in rate(results)}


def test_a_known_share_gives_the_known_elo() -> None:
    # 10 to 1 is 400 Elo by definition; 1,100 games make the prior negligible
    ratings = by_name([match("weights:1", "uct:100", 1000, 0, 100)])
    assert ratings["weights:1"].elo == pytest.approx(400, abs=3)
    assert ratings["uct:100"].elo == ratings["uct:100"].low == ratings["uct:100"].high == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_seats_do_not_matter_and_nothing_overflows(games: list[tuple[str, str, int, int]]) -> None:
    there = by_name([match(a, b, wins, 0, losses) for a, b, wins, losses in games])
    back = by_name([match(b, a, losses, 0, wins) for a, b, wins, losses in games])
    assert set(there) == set(back)
    anchored_alike = {name for name, rating in there.items() if rating.low == rating.high} == {
        name for name, rating in back.items() if rating.low == rating.high
    }
    for name, rating in there.items():
        assert np.isfinite([rating.elo, rating.low, rating.high]).all()
        if anchored_alike:
            assert rating.elo == pytest.approx(back[name].elo, abs=1e-3)


def test_without_the_anchor_the_first_fixed_opponent_is_zero() -> None:
    ratings = by_name([match("weights:1", "solver", 1, 0, 9), match("weights:1", "random", 9, 0, 1)])
    assert ratings["solver"].elo == 0
    assert ratings["random"].elo < ratings["weights:1"].elo < 0


def field_match(first: str, second: str, games: int, share: float, seats: int) -> MatchResult:
    wins = round(games * share)
    spec = MatchSpec(first, second, games, 64, 0, 0)
    return MatchResult(spec, first, second, wins, 0, games - wins, 0, seats=seats, share=share)


def test_a_match_that_an_engine_ended_rates_nobody() -> None:
    spec = MatchSpec("weights:1", "gtp:x", 10, 64, 4, 0)
    failed = MatchResult(spec, "weights:1", "gtp:x", 0, 0, 0, 0, error="engine gtp:x died")
    assert set(by_name([failed, match("weights:1", "uct:100", 6, 0, 4)])) == {"weights:1", "uct:100"}


def log_posterior(elo: Mapping[str, float], results: Sequence[MatchResult]) -> float:
    """How probable ratings are, up to a constant: what is written above `rate`, in numbers."""
    total = sum(-(strength**2) / (2 * 1500.0**2) for strength in elo.values())
    for result in results:
        games = result.wins + result.draws + result.losses
        points = games * result.share if result.seats > 2 else result.wins + result.draws / 2
        share = 1 / (1 + (result.seats - 1) * 10 ** ((elo[result.second] - elo[result.first]) / 400))
        total += points * math.log(share) + (games - points) * math.log(1 - share)
    return total


@pytest.mark.parametrize(
    "results",
    [
        [match("weights:1", "uct:100", 40, 0, 0)],
        [match("weights:1", "uct:100", 30, 4, 10), match("weights:2", "weights:1", 7, 2, 3), match("uct:100", "weights:2", 1, 0, 9)],
        [field_match("weights:1", "uct:100", 100, 0.4, 4), match("weights:2", "weights:1", 5, 1, 6)],
    ],
    ids=["undefeated", "three players", "four seats"],
)
def test_ratings_are_the_peak_of_what_is_probable_and_intervals_its_width(results: list[MatchResult]) -> None:
    ratings = by_name(results)
    assert [rating.elo for rating in rate(results)] == sorted((rating.elo for rating in ratings.values()), reverse=True)
    free = [name for name in ratings if name != "uct:100"]
    moves = np.eye(len(free))

    def near(move: np.ndarray) -> float:
        elo = {name: rating.elo for name, rating in ratings.items()}
        return log_posterior(elo | {name: elo[name] + float(by) for name, by in zip(free, move, strict=True)}, results)

    slope = np.array([near(0.05 * one) - near(-0.05 * one) for one in moves]) / 0.1
    bend = np.array([[near((a + b) / 2) - near((a - b) / 2) - near((b - a) / 2) + near(-(a + b) / 2) for a in moves] for b in moves])
    assert np.linalg.solve(bend, slope) == pytest.approx(0, abs=0.01)  # Elo from here to the peak
    margin = 1.959964 * np.sqrt(np.diag(np.linalg.inv(-bend)))
    assert [ratings[name].high - ratings[name].elo for name in free] == pytest.approx(margin, rel=1e-4)
    assert [ratings[name].elo - ratings[name].low for name in free] == pytest.approx(margin, rel=1e-4)


def test_it_stops_at_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    solve = np.linalg.solve

    def counted(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
        steps.append(float(np.abs(solve(matrix, vector)).max()))
        return solve(matrix, vector)

    monkeypatch.setattr(np.linalg, "solve", counted)
    rate([match("weights:1", "uct:100", 30, 4, 10), match("weights:2", "weights:1", 7, 2, 3)])
    assert len(steps) < 10
    assert steps[-1] < 1e-6 <= steps[-2]


def test_games_and_points_are_counted_for_both_sides() -> None:
    ratings = by_name([match("weights:1", "uct:100", 30, 4, 10), match("uct:100", "weights:1", 1, 0, 2)])
    assert (ratings["weights:1"].games, ratings["weights:1"].score) == (47, 34.0)
    assert (ratings["uct:100"].games, ratings["uct:100"].score) == (47, 13.0)


def test_equals_stand_in_the_order_of_their_names() -> None:
    assert [rating.player for rating in rate([match("uct:9", "uct:100", 0, 4, 0), match("uct:3", "uct:100", 2, 0, 2)])] == [
        "uct:100",
        "uct:3",
        "uct:9",
    ]


def test_a_player_against_itself_a_match_without_games_and_a_game_for_one_rate_nobody() -> None:
    alone = replace(match("weights:1", "uct:100", 9, 0, 1), seats=1)
    assert rate([match("weights:1", "weights:1", 3, 0, 1), match("weights:1", "uct:100", 0, 0, 0), alone]) == []


def test_shares_of_the_points() -> None:
    assert match("a", "b", 3, 2, 1).score == 4 / 6
    assert match("a", "b", 0, 1, 0).score == 0.5
    assert match("a", "b", 0, 0, 0).score == 0.0
    assert MatchResult(MatchSpec("a", "b", 4, 8, 0, 0), "a", "b", 1, 0, 3, 0, seats=3, share=0.375).score == 0.375
    assert MatchResult(MatchSpec("a", "b", 4, 8, 0, 0), "a", "b", 1, 0, 3, 0, seats=2, share=0.375).score == 0.25


def test_zero_is_the_wanted_player_or_the_first_that_stays_as_it_is_or_the_first() -> None:
    assert choose_anchor(["weights:1", "solver", "uct:100"], "uct:100") == "uct:100"
    assert choose_anchor(["weights:1", "solver", "random"], "uct:100") == "solver"
    assert choose_anchor(["weights:3", "weights:1", "weights:2"], "uct:100") == "weights:3"


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
