"""Matches with many seats, chance and resignation: duplicate deals, fairness, points with their error, failures by name."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from arena_doubles import CardGame, Choosing, WalkGame
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.arena.match import deal, failed, mean_and_error, play_match, random_opening, share_of_first_place, whole_groups
from azq.arena.player import RESIGN
from azq.errors import ConfigError
from azq.wire.codec import decode, encode
from azq.wire.messages import MatchResult, MatchSpec

CARDS: Any = CardGame()
WALK: Any = WalkGame()


def spec(games_: int, plies: int = 0) -> MatchSpec:
    return MatchSpec("a", "b", games_, 1, plies, 5)


def highest(state: Any) -> int:
    return int(max(state.legal_actions()))


def lowest(state: Any) -> int:
    return int(min(state.legal_actions()))


def test_each_deal_is_played_once_from_every_seat() -> None:
    first, second = Choosing(CARDS, highest, "a"), Choosing(CARDS, lowest, "b")
    result = play_match(spec(30), CARDS, first, second)
    assert (result.seats, result.wins + result.draws + result.losses) == (3, 30)
    seats_of_deal = defaultdict(set)
    for history in first.asked:
        seats_of_deal[tuple(history[:6])].add(len(history) - 6)
    assert len(seats_of_deal) == 10
    assert all(seats == {0, 1, 2} for seats in seats_of_deal.values())
    assert Counter(len(history) - 6 for history in second.asked) == {0: 20, 1: 20, 2: 20}


def test_equals_win_one_game_in_n_and_no_points_on_duplicate_deals() -> None:
    result = play_match(spec(90), CARDS, Choosing(CARDS, highest), Choosing(CARDS, highest))
    assert result.wins == 30
    assert result.share == pytest.approx(1 / 3)
    assert result.points == pytest.approx(0.0, abs=1e-9)
    assert result.points_se == pytest.approx(0.0, abs=1e-9)  # luck is shared within a group, play is equal: nothing is left to vary


def test_better_play_shows_in_share_and_points() -> None:
    result = play_match(spec(90), CARDS, Choosing(CARDS, highest), Choosing(CARDS, lowest))
    assert result.share > 0.5
    assert result.points > 3 * result.points_se > 0


def test_pairs_share_dice_and_throws_stay_the_same_when_play_differs() -> None:
    players = Choosing(WALK, highest, "a"), Choosing(WALK, lowest, "b")
    play_match(spec(40), WALK, *players)
    last = [history for player in players for history in player.asked if len(history) == 11]
    throws = Counter(tuple(history[0::3]) for history in last)
    assert len(last) == 40
    assert all(count % 2 == 0 for count in throws.values())
    assert len(throws) > 10


def test_an_opening_counts_plies_of_players_and_none_leaves_chance_to_the_games() -> None:
    assert random_opening(WALK, 0, random.Random(1)) == []
    opening = random_opening(WALK, 3, random.Random(1))
    assert len(opening) == 5  # two throws
    dealt = deal(WALK, MatchSpec("a", "b", 4, 1, 3, 1))
    assert dealt[0].history == dealt[1].history != dealt[2].history
    with pytest.raises(ConfigError, match="opening_plies"):
        random_opening(WALK, 8, random.Random(1))


def test_who_resigns_has_lost() -> None:
    game = games.load("tic_tac_toe")
    first, second = Choosing(game, lambda _: RESIGN), Choosing(game, lowest)
    result = play_match(spec(6), game, first, second)
    assert (result.wins, result.losses, result.points) == (0, 6, -1.0)


def test_a_failed_match_has_no_games_and_says_why_on_the_wire() -> None:
    result = decode(encode(failed(spec(6), "engine gtp:x died")), MatchResult)
    assert (result.wins, result.draws, result.losses, result.error) == (0, 0, 0, "engine gtp:x died")


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
def test_shares_of_first_place_sum_to_one(returns: list[int]) -> None:
    shares = [share_of_first_place(returns, seat) for seat in range(len(returns))]
    assert math.fsum(shares) == pytest.approx(1.0)
    assert all((share > 0) == (value == max(returns)) for share, value in zip(shares, returns, strict=True))


@given(st.integers(1, 500), st.integers(2, 8))
def test_groups_are_whole_and_no_larger_than_asked_for(count: int, seats: int) -> None:
    games_ = whole_groups(count, seats)
    assert games_ % seats == 0
    assert count <= games_ < count + seats


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=40).filter(lambda values: len(values) % 2 == 0))
def test_the_error_is_that_of_group_means(points: list[float]) -> None:
    mean, error = mean_and_error(points, 2)
    pairs = [(one + other) / 2 for one, other in zip(points[::2], points[1::2], strict=True)]
    assert mean == pytest.approx(sum(points) / len(points), abs=1e-9)
    spread = sum((pair - mean) ** 2 for pair in pairs) / (len(pairs) - 1)
    assert error == pytest.approx(math.sqrt(spread / len(pairs)), abs=1e-9)


def test_one_group_tells_nothing_of_the_error() -> None:
    assert mean_and_error([1.0, -1.0], 2) == (0.0, 0.0)
