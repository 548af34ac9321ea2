"""Games from Python files and from OpenSpiel: loading, the contract, and the search in Python."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Search
from azq.errors import ConfigError, IllegalActionError, UnknownGameError
from azq.search.portable import PortableSearch

NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"


def uniform(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((len(packed), 3), np.float16), np.zeros((len(packed), 1), np.float16)


def test_a_python_file_is_a_game() -> None:
    game = games.load(NIM, heap=7)
    assert (game.num_players(), game.num_distinct_actions(), game.params) == (2, 3, {"heap": 7})
    state = game.new_initial_state()
    for action in (2, 2):
        state.apply_action(action)
    assert state.legal_actions() == [0]
    with pytest.raises(IllegalActionError, match="action 1 is illegal after 2 plies; legal actions: 0"):
        state.apply_action(1)
    state.apply_action(0)
    assert state.is_terminal()
    assert state.returns() == [1.0, -1.0]
    packed, masks, players, returns = game.replay(np.array(state.history(), np.uint16))
    assert packed.shape == (3, 1)
    assert masks.tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert players.tolist() == [0, 1, 0]
    assert returns.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_it_decides_as_the_core_does(algorithm: str) -> None:
    """Far from any end, and without kept subtrees, both searches are the same mathematics."""
    game = games.load("connect_four")
    settings = Settings(algorithm, 24, reuse_subtree=False, gumbel_scale=0.0, dirichlet_fraction=0.0, temperature_plies=0)
    evaluate = HashEvaluator(7, seed=3)
    rng = random.Random(2)
    for _ in range(6):
        history = [rng.randrange(7) for _ in range(4)]
        results = []
        for kind in (Search, PortableSearch):
            search = kind(game, settings.core(), num_slots=1, seed=5, autoplay=False)
            search.start(0, 9, np.array(history, np.uint16))
            Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate).run()
            results.append(search.result(0))
        ours, theirs = results
        np.testing.assert_array_equal(ours.visit_counts, theirs.visit_counts)
        np.testing.assert_allclose(ours.policy, theirs.policy, atol=2e-3)
        np.testing.assert_allclose(ours.root_value, theirs.root_value, atol=2e-3)
        assert (ours.action, ours.best_action) == (theirs.action, theirs.best_action)


def test_self_play_records_replay_and_go_on_elsewhere() -> None:
    game = games.load(NIM)
    settings = Settings("gumbel", 8)

    def played(actions: list[int]) -> list[int]:
        search = PortableSearch(game, settings.core(), num_slots=2, seed=4)
        search.start(1, 77, np.array(actions, np.uint16))
        Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=uniform).run()
        record = search.record(1)
        assert record.terminal
        assert record.policies.shape == (len(record.actions), 3)
        return [int(action) for action in record.actions]

    whole = played([])
    assert played(whole[:3]) == whole


def test_files_and_classes_that_are_not_there_are_named() -> None:
    with pytest.raises(UnknownGameError, match=r"no file nowhere\.py; the game's file must be on every machine"):
        games.load("nowhere.py:Game")
    with pytest.raises(UnknownGameError, match="no class Nom in"):
        games.load(NIM.replace("Nim", "Nom"))
    with pytest.raises(ConfigError, match="has no parameter sticks; it takes heap"):
        games.load(NIM, sticks=3)
