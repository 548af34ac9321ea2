"""Matches at equal time: a clock ends each move, and the result says what a move took; all by hand-made clocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from azq import games
from azq.arena.match import MeteredPlayer
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.arena.searcher import Searcher
from azq.config import SearchConfig, load
from azq.console import play
from azq.errors import ConfigError
from azq.search.evaluator import UniformEvaluator

GOMOKU = games.load("gomoku", size=9)


def ticking(tick_ms: float) -> Callable[[], float]:
    """A clock that is so many milliseconds later at every look."""
    return partial(next, itertools.count(step=tick_ms / 1000))


def searcher(game: games.Game, move_ms: int, tick_ms: float, **search: object) -> Searcher:
    evaluator = UniformEvaluator(game.num_distinct_actions(), game.value_size())
    return Searcher(game, evaluator, SearchConfig(**search), 64, slots=8, move_ms=move_ms, clock=ticking(tick_ms))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["connect_four", "gomoku", "backgammon", "blob", "tests/games/nim.py:Nim"])
def test_a_move_is_searched_until_its_time_is_over(name: str) -> None:
    game = games.load(name)
    state, opening = game.new_initial_state(), list[int]()
    while state.is_chance_node():
        opening.append(state.chance_outcomes()[0][0])
        state.apply_action(opening[-1])
    short, long = searcher(game, 20, 1.0), searcher(game, 60, 1.0)
    (result,) = short.results([opening])
    long.results([opening, opening])
    assert result.best_action in state.legal_actions()
    assert sum(result.visit_counts) == short.simulations
    assert 1 < short.simulations < long.simulations / 4  # twice as many positions, three times as long each
    slow = searcher(game, 20, 1000.0)  # every look is too late: one simulation all the same
    (result,) = slow.results([opening])
    assert sum(result.visit_counts) == slow.simulations == 1


def test_several_leaves_at_once_end_within_a_step() -> None:
    one, many = (searcher(GOMOKU, 20, 1.0, leaves_per_step=leaves) for leaves in (1, 8))
    for some in (one, many):
        some.results([[]])
    assert one.simulations < many.simulations <= 8 * (one.simulations + 1)


def test_what_moves_took_is_counted_over_all_games() -> None:
    ground = Ground(GOMOKU, UniformEvaluator(81), SearchConfig(), 0, latest=1, move_ms=250, clock=ticking(100.0))
    first, second = (MeteredPlayer(make_player(name, ground), ticking(3000.0), ticking(1500.0)) for name in ("latest", "random"))
    first.choose([[], [40], [40, 41]])
    second.choose([[]])
    assert first.a_move() == {"ms": 1000.0, "cpu_s": 0.5, "simulations": 2.0}  # of three steps the first one is the root's
    assert second.a_move() == {"ms": 3000.0, "cpu_s": 1.5, "simulations": 0.0}


def test_the_result_says_what_a_move_took() -> None:
    seating = play.Seating("tic_tac_toe", None, "latest", seed=1, **play.budget(None, 1, 64))
    result = play.match_players(load(), seating, "azq:tic_tac_toe", "random", 4, 0)
    assert result["move_ms"] == 1
    assert result["a_move"][0]["simulations"] >= 1
    assert "a move of 1 ms: " in play.match_text(result)


@pytest.mark.parametrize(("simulations", "move_ms"), [(None, 0), (None, -5), (64, 100)])
def test_a_time_that_is_none_and_a_second_bound_are_one_error(simulations: int | None, move_ms: int) -> None:
    with pytest.raises(ConfigError, match=f"--move-ms {move_ms} is"):
        play.budget(simulations, move_ms, 64)
    with pytest.raises(ConfigError, match="uct:50 has a fixed number"):
        make_player("uct:50", Ground(GOMOKU, None, SearchConfig(), 0, move_ms=100))
