"""Moves that win at once: seen without an evaluation, at the root whatever its priors say, one ply below as the opponent's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.config import Settings
from reference.driver import Driver

from azq import games
from azq._core import Game, Search
from azq.config import RunSections
from azq.errors import ConfigError
from azq.search.search import Result, check_search, make_search

GUMBEL = Settings("gumbel", 24, gumbel_scale=0.0, max_considered_actions=2, decisive_moves=True)
PUCT = Settings("puct", 24, dirichlet_fraction=0.0, temperature_plies=0, decisive_moves=True)
COPY = f"{Path(__file__).parents[2] / 'games' / 'copied.py'}:TicTacToe"


class Favourite:
    """Evaluations of a network that is sure of one action and blind to all others."""

    def __init__(self, actions: int, action: int) -> None:
        self.asked = 0
        self._row = np.full(actions, -30.0, np.float16)
        self._row[action] = 0.0

    def __call__(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        self.asked += len(packed)
        return np.repeat(self._row[None], len(packed), 0), np.zeros((len(packed), 1), np.float16)


def searched(game: Game, actions: Sequence[int], settings: Settings, evaluate: Favourite) -> Result:
    search = make_search(game, settings.core(), num_slots=1, seed=1, autoplay=False)
    search.start(0, 1, np.array(actions, np.uint16))
    Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate).run()
    return search.result(0)


@pytest.mark.parametrize("settings", [GUMBEL, PUCT, dataclasses.replace(PUCT, leaves_per_step=4)], ids=["gumbel", "puct", "4 leaves"])
def test_a_win_at_hand_is_taken_whatever_the_network_thinks_of_it(settings: Settings) -> None:
    line = [3, 0, 3, 0, 3, 6]  # three in the middle column: 3 wins
    game, evaluate = games.load("connect_four"), Favourite(7, 1)
    found = searched(game, line, settings, evaluate)
    assert (found.proven, found.root_value, found.action, found.best_action) == (True, 1.0, 3, 3)
    assert evaluate.asked == 1  # the root
    blind = searched(game, line, dataclasses.replace(settings, decisive_moves=False), Favourite(7, 1))
    assert blind.best_action != 3


@pytest.mark.parametrize("name", ["tic_tac_toe", COPY])
def test_what_loses_to_the_next_move_is_known_without_asking(name: str) -> None:
    game, line = games.load(name), [0, 4, 1]  # 2 would win: only 2 is no loss
    found = searched(game, line, dataclasses.replace(GUMBEL, max_considered_actions=9), evaluate := Favourite(9, 8))
    assert found.best_action == 2
    np.testing.assert_array_equal(found.q_values[[3, 5, 6, 7, 8]], -1.0)
    blind = Favourite(9, 8)
    searched(game, line, dataclasses.replace(GUMBEL, max_considered_actions=9, decisive_moves=False), blind)
    assert evaluate.asked < blind.asked


def test_othello_sees_that_the_next_move_takes_its_last_disc() -> None:
    game = games.load("othello", size=6)
    state, line = wiped_out(game)
    safe = [action for action in state.legal_actions() if not loses_at_once(state, action)]
    assert 0 < len(safe) < len(state.legal_actions())
    doomed = next(action for action in state.legal_actions() if action not in safe)
    settings = dataclasses.replace(GUMBEL, max_considered_actions=16)
    found = searched(game, line, settings, Favourite(game.num_distinct_actions(), doomed))
    assert found.q_values[doomed] == -1.0
    assert found.best_action in safe


def loses_at_once(state: games.State, action: int) -> bool:
    after = state.clone()
    after.apply_action(action)
    for reply in after.legal_actions():
        end = after.clone()
        end.apply_action(reply)
        if end.is_terminal() and end.returns()[state.current_player()] == -1.0:
            return True
    return False


def wiped_out(game: games.Game) -> tuple[games.State, list[int]]:
    """A position of a random game within its first 14 plies with a move after which the opponent may take all discs."""
    for seed in range(10_000):
        rng = np.random.default_rng(seed)
        state = game.new_initial_state()
        line: list[int] = []
        while not state.is_terminal() and len(line) < 14:
            losing = [loses_at_once(state, action) for action in state.legal_actions()]
            if any(losing) and not all(losing):
                return state, line
            line.append(int(rng.choice(state.legal_actions())))
            state.apply_action(line[-1])
    raise AssertionError("no such position")


@pytest.mark.parametrize("name", ["backgammon", "blob", "2048"])
def test_games_of_chance_and_secrets_refuse_it(name: str) -> None:
    search = RunSections().search.model_copy(update={"decisive_moves": True})
    with pytest.raises(
        ConfigError, match=rf"search\.decisive_moves is of games in which nothing is hidden.* {name} is none; set it to false"
    ):
        check_search(search, games.load(name))
    with pytest.raises(ConfigError, match="batch_root and decisive_moves must be false"):
        Search(games.load(name), GUMBEL.core(), num_slots=1, seed=1)
