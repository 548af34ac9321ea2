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
from azq.errors import ConfigError, GameContractError, IllegalActionError, UnknownGameError
from azq.search.portable import PortableSearch
from azq.search.search import make_search

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


def test_the_search_in_python_solves_nim() -> None:
    game = games.load(NIM, heap=10)
    for algorithm in ("gumbel", "puct"):
        settings = Settings(algorithm, 1600, gumbel_scale=0.0, dirichlet_fraction=0.0, temperature_plies=0)
        search = make_search(game, settings.core(), num_slots=1, seed=1, autoplay=False)
        assert isinstance(search, PortableSearch)
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=uniform)
        search.start(0, 1, np.zeros(0, np.uint16))
        driver.run()
        result = search.result(0)
        assert result.best_action == 1  # leaves eight, a multiple of four
        assert result.root_value > 0.2


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


def test_games_of_openspiel_with_chance_secrets_and_many_players() -> None:
    pytest.importorskip("pyspiel")
    for name, params in {"kuhn_poker": {}, "leduc_poker": {}, "pig": {}, "breakthrough": {"rows": 5, "columns": 4}}.items():
        game = games.load(f"openspiel:{name}", **params)
        search = make_search(game, Settings("gumbel", 8).core(), num_slots=3, seed=1)
        evaluate = HashEvaluator(game.num_distinct_actions(), value_size=game.value_size())
        records = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate).play([1, 2, 3])
        assert len(records) == 3
        for record in records:
            returns = game.replay(record.actions)[3]
            assert returns.tolist() == record.returns.tolist()
            assert max(abs(value) for value in returns) <= 1.0


def look_at(name: str) -> None:
    state = games.load(name, heap=6).new_initial_state()
    state.packed_observation()
    state.legal_actions()


BROKEN = {
    "returns": ("return [1.0, -1.0, 0.0]", "returns has 3 numbers for 2 players"),
    "observation_tensor": ("return [0.5] * 15", "observation_tensor holds 0.5"),
    "legal_actions": ("return []", "no legal action where player 0 is to move"),
    "current_player": ("return 7", "current_player is 7"),
    "apply_action": ("raise ZeroDivisionError('oops')", "apply_action raised ZeroDivisionError: oops"),
}


@pytest.mark.parametrize("method", BROKEN)
def test_a_broken_game_is_named_by_the_rule_and_harms_no_other(method: str, tmp_path: Path) -> None:
    code, rule = BROKEN[method]
    source = Path(NIM.rpartition(":")[0]).read_text("utf-8")
    lines = source.splitlines()
    at = next(number for number, line in enumerate(lines) if f"def {method}(" in line)
    lines.insert(at + 1, f"        if self.heap == 6:\n            {code}")
    file = tmp_path / "broken.py"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    if method in ("observation_tensor", "current_player", "legal_actions"):
        with pytest.raises(GameContractError, match=rule):
            look_at(f"{file}:Nim")
        return
    game = games.load(f"{file}:Nim", heap=6)
    search = PortableSearch(game, Settings("gumbel", 8).core(), num_slots=2, seed=1)
    search.start(0, 5, np.zeros(0, np.uint16))
    Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=uniform).run()
    assert search.finished_slots() == []
    uid, reason = search.broken_slots()[0]
    assert uid == 5
    assert rule in reason
    search.clear(0)
    assert search.broken_slots() == {}


def test_files_and_classes_that_are_not_there_are_named() -> None:
    with pytest.raises(UnknownGameError, match=r"no file nowhere\.py; the game's file must be on every machine"):
        games.load("nowhere.py:Game")
    with pytest.raises(UnknownGameError, match="no class Nom in"):
        games.load(NIM.replace("Nim", "Nom"))
    with pytest.raises(ConfigError, match="has no parameter sticks; it takes heap"):
        games.load(NIM, sticks=3)
