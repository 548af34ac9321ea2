"""The search in Python: nobody peeks, chance and seats count, broken games end alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Search
from azq.errors import GameContractError, IllegalActionError
from azq.games.adapted_state import AdaptedState
from azq.search.portable import PortableResult, PortableSearch

FOLDER = Path(__file__).parents[2] / "games"
NIM, BLIND = f"{FOLDER / 'nim.py'}:Nim", f"{FOLDER / 'blind_guess.py'}:BlindGuess"
PLAIN: dict[str, Any] = {"gumbel_scale": 0.0, "dirichlet_fraction": 0.0, "temperature_plies": 0}
START = np.zeros(0, np.uint16)


def uniform(actions: int, seats: int = 1) -> Any:
    return lambda packed: (np.zeros((len(packed), actions), np.float16), np.zeros((len(packed), seats), np.float16))


def search(game: games.Game, settings: Settings, history: list[int], evaluate: Any = None, seed: int = 1) -> PortableResult:
    tried = PortableSearch(game, settings.core(), num_slots=1, seed=seed, autoplay=False)
    tried.start(0, 1, np.array(history, np.uint16))
    evaluate = evaluate or uniform(game.num_distinct_actions(), game.value_size())
    Driver(tried, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate).run()
    return tried.result(0)


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_nobody_below_the_root_acts_on_what_another_sees(algorithm: str) -> None:
    """Player 0's second node hangs below one of player 1, who sees the coin; a blind guess is worth nothing all the same."""
    result = search(games.load(BLIND), Settings(algorithm, 600, **PLAIN), [0])
    assert abs(result.root_value) < 0.15


def test_plain_determinized_search_believes_that_it_sees() -> None:
    result = search(games.load(BLIND), Settings("puct", 600, determinizations=8, **PLAIN), [0])
    assert result.root_value > 0.8


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_positions_equal_to_the_mover_are_searched_alike(algorithm: str) -> None:
    game = games.load(BLIND)
    one, other = (search(game, Settings(algorithm, 60, **PLAIN), [coin], HashEvaluator(2), seed=9) for coin in (0, 1))
    np.testing.assert_array_equal(one.visit_counts, other.visit_counts)
    np.testing.assert_array_equal(one.q_values, other.q_values)
    assert one.root_value == other.root_value


def test_a_core_game_of_chance_is_valued_as_the_core_values_it() -> None:
    """Both sample dice by their own random numbers, so they agree in the mean only."""
    game = games.load("backgammon", start="bearoff")
    state = game.new_initial_state()
    while state.is_chance_node() or len(state.legal_actions()) < 2:
        state.apply_action(state.legal_actions()[0])
    settings = Settings("puct", 400, **PLAIN)

    def evaluate(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.sin(packed.astype(np.float32).sum(axis=1, keepdims=True)).astype(np.float16)
        return np.zeros((len(packed), game.num_distinct_actions()), np.float16), values

    values = []
    for kind in (Search, PortableSearch):
        tried: Any = kind(game, settings.core(), num_slots=1, seed=2, autoplay=False)
        tried.start(0, 1, np.array(state.history(), np.uint16))
        Driver(tried, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate).run()
        values.append(tried.result(0).root_value)
    assert abs(values[0] - values[1]) < 0.1


def test_three_seats_have_a_value_each() -> None:
    """Records of three players hold the mover's value first; a search that knows the results finds who wins."""
    game = games.load("blob", players=3, cards=2)
    assert game.value_size() == 3
    tried = PortableSearch(game, Settings("gumbel", 16).core(), num_slots=2, seed=3)
    driver = Driver(tried, packed_size=game.packed_size(), leaves_per_step=1, evaluate=uniform(game.num_distinct_actions(), 3))
    for record in driver.play([4, 5]):
        _, masks, players, returns = game.replay(record.actions)
        assert returns.tolist() == record.returns.tolist()
        searched = record.simulations > 0
        assert record.root_values.shape == (len(record.actions), 3)
        assert (players[searched] >= 0).all()
        assert (record.simulations[players < 0] == 0).all()  # chance plies are recorded and carry no target
        np.testing.assert_allclose(record.policies[searched].sum(axis=1), 1.0, atol=1e-2)
        assert not record.policies[masks == 0].any()


def test_leaves_out_for_evaluation_are_not_forgotten() -> None:
    game = games.load(NIM)
    tried = PortableSearch(game, Settings("gumbel", 8).core(), num_slots=1, seed=1)
    tried.start(0, 1, START)
    packed, slots = np.zeros((1, game.packed_size()), np.uint8), np.zeros(1, np.int32)
    assert tried.collect(packed, slots) == 1
    for act in (lambda: tried.collect(packed, slots), lambda: tried.clear(0), lambda: tried.start(0, 2, START)):
        with pytest.raises(RuntimeError, match="call apply first"):
            act()
    with pytest.raises(ValueError, match=r"needs logits \(1, 3\)"):
        tried.apply(np.zeros((1, 2), np.float16), np.zeros((1, 1), np.float16))
    with pytest.raises(ValueError, match="NaN"):
        tried.apply(np.full((1, 3), np.nan, np.float16), np.zeros((1, 1), np.float16))
    tried.apply(np.zeros((1, 3), np.float16), np.zeros((1, 1), np.float16))
    tried.clear(0)
    assert tried.empty_slots() == [0]


@pytest.fixture
def raising(tmp_path: Path) -> games.Game:
    """Nim whose moves raise where fewer than six sticks are left."""
    source = (FOLDER / "nim.py").read_text("utf-8")
    file = tmp_path / "raising.py"
    file.write_text(
        source.replace(
            "        self.left -= action + 1", "        if self.left < 6: raise OSError('gone')\n        self.left -= action + 1"
        )
    )
    return games.load(f"{file}:Nim")


def test_a_broken_game_frees_its_slot_and_the_others_play_on(raising: games.Game) -> None:
    tried = PortableSearch(raising, Settings("gumbel", 8).core(), num_slots=2, seed=1)
    driver = Driver(tried, packed_size=raising.packed_size(), leaves_per_step=1, evaluate=uniform(3))
    for uid in (1, 2, 3):
        tried.start(0, uid, START)
        driver.run()
        assert set(tried.broken_slots()) == {0}
        assert tried.broken_slots()[0][0] == uid
        assert "apply_action raised OSError: gone" in tried.broken_slots()[0][1]
        assert tried.finished_slots() == tried.changed_slots() == []
        tried.clear(0)
        assert tried.empty_slots() == [0, 1]  # as often as games break


def test_a_game_that_breaks_while_it_is_adopted_leaves_the_slot_empty(raising: games.Game) -> None:
    tried = PortableSearch(raising, Settings("gumbel", 8).core(), num_slots=1, seed=1)
    with pytest.raises(GameContractError, match="gone"):
        tried.start(0, 1, np.array([2, 2, 2, 2, 2], np.uint16))
    assert tried.empty_slots() == [0]
    with pytest.raises(IllegalActionError, match="at ply 1 of game 2"):
        tried.start(0, 2, np.array([2, 7], np.uint16))
    assert tried.empty_slots() == [0]


def test_the_arena_hears_why_a_position_cannot_be_searched(raising: games.Game) -> None:
    with pytest.raises(GameContractError, match="apply_action raised OSError: gone"):
        search(raising, Settings("puct", 50, **PLAIN), [2, 2, 2])


def test_a_game_that_outlives_its_declared_length_is_broken_by_name() -> None:
    game = games.load(f"{FOLDER / 'endless.py'}:Endless")
    tried = PortableSearch(game, Settings("puct", 2, **PLAIN).core(), num_slots=2, seed=3)
    tried.start(0, 7, np.array([1], np.uint16))
    tried.start(1, 8, np.array([0], np.uint16))
    packed, slots = np.zeros((2, game.packed_size()), np.uint8), np.zeros(2, np.int32)
    for _ in range(100):
        count = tried.collect(packed, slots)
        tried.apply(np.zeros((count, 2), np.float16), np.zeros((count, 1), np.float16))
    assert tried.broken_slots() == {
        0: (7, f"game {game.name} has not ended after the 8 plies that its max_game_length() declares as the most")
    }
    assert tried.finished_slots() == [1]
    with pytest.raises(GameContractError, match=r"max_game_length\(\)"):
        tried.start(1, 9, np.ones(8, np.uint16))


NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"


def test_a_position_is_asked_once_in_a_game(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: Counter[tuple[int, ...]] = Counter()
    packed = AdaptedState.packed_observation

    def counted(state: AdaptedState, player: int | None = None) -> np.ndarray:
        shown[tuple(state.history())] += 1
        return packed(state, player)

    monkeypatch.setattr(AdaptedState, "packed_observation", counted)
    game = games.load(NIM)
    search = PortableSearch(game, Settings("gumbel", 16).core(), num_slots=1, seed=3)
    (record,) = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=HashEvaluator(3)).play([1])
    assert len(record.actions) >= 5
    assert search.evaluations > len(shown)  # the positions of later plies were shown already
    assert set(shown.values()) == {1}


def test_an_action_played_by_somebody_else_is_searched_from_where_it_leads() -> None:
    game = games.load(NIM)
    results = []
    for history in ([], [2]):
        search = PortableSearch(game, Settings("puct", 30).core(), num_slots=1, seed=3, autoplay=False)
        search.start(0, 1, np.array(history, np.uint16))
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=HashEvaluator(3))
        if not history:
            driver.run()
            search.play(0, 2)
        driver.run()
        results.append(search.result(0))
    np.testing.assert_array_equal(results[0].visit_counts, results[1].visit_counts)
    np.testing.assert_array_equal(results[0].q_values, results[1].q_values)
