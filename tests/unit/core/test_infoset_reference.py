"""The search through chance and hidden hands against the plain Python one, bit for bit, over whole games."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator
from reference.infoset import ReferenceInfosetGame

from azq import games
from azq._core import Search
from azq.errors import ConfigError

GAMES: dict[str, dict[str, Any]] = {
    "2048": {"max_moves": 40},
    "backgammon": {"start": "bearoff"},
    "beasty_bar": {"players": 2},
    "beasty_bar 3": {"players": 3},
    "blob": {"players": 3, "cards": 3},
    "blob 4": {"players": 4, "cards": 2, "trump": "any"},
}
PUCT = Settings("puct", 20)
GUMBEL = Settings("gumbel", 20)
SETTINGS = {
    "puct": PUCT,
    "puct, 4 leaves": dataclasses.replace(PUCT, leaves_per_step=4, temperature_plies=2),
    "gumbel": GUMBEL,
    "gumbel, the range seen": dataclasses.replace(GUMBEL, q_range=0.02, c_scale=0.1),
    "gumbel, 4 worlds": dataclasses.replace(GUMBEL, determinizations=4),
    "gumbel, 3 leaves": dataclasses.replace(GUMBEL, leaves_per_step=3, max_considered_actions=4),
}


CASES = [
    (name, how) for name in GAMES for how, settings in SETTINGS.items() if name in ("2048", "backgammon") or settings.leaves_per_step == 1
]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_a_self_played_record_equals_the_reference(name: str, how: str) -> None:
    settings = SETTINGS[how]
    game = games.load(name.split()[0], **GAMES[name])
    evaluate = HashEvaluator(game.num_distinct_actions(), seed=4, value_size=game.value_size())
    search = Search(game, settings.core(), num_slots=2, seed=2**40 + 6)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate)
    record = driver.play([100, 201])[1]
    reference = ReferenceInfosetGame(game, settings, seed=2**40 + 6, uid=201, evaluate=evaluate)
    players = game.replay(record.actions)[2]
    assert (record.simulations[players < 0] == 0).all()
    for ply in np.flatnonzero(players >= 0):
        assert reference.state.history() == record.actions[:ply].tolist()
        expected = reference.search()
        np.testing.assert_array_equal(record.policies[ply], expected.policy.astype(np.float16))
        assert record.root_values[ply].tolist() == expected.values
        assert record.simulations[ply] == max(1, expected.simulations)
        assert record.actions[ply] == expected.decision.action
        reference.play(int(record.actions[ply]))
    assert reference.state.is_terminal()
    assert record.returns.tolist() == reference.state.returns()


def test_hidden_hands_refuse_several_leaves_at_once() -> None:
    with pytest.raises(ConfigError, match="leaves_per_step must be 1 in blob, whose hands are hidden"):
        Search(games.load("blob"), Settings("puct", 8, leaves_per_step=2).core(), num_slots=1, seed=1)


@pytest.mark.parametrize("name", [name for name in GAMES if name not in ("2048", "backgammon")])
def test_positions_that_the_mover_cannot_tell_apart_give_the_same_search(name: str) -> None:
    game = games.load(name.split()[0], **GAMES[name])
    evaluate = HashEvaluator(game.num_distinct_actions(), seed=8, value_size=game.value_size())
    search = Search(game, dataclasses.replace(GUMBEL, num_simulations=48).core(), num_slots=2, seed=5, autoplay=False)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
    record = _game(game, evaluate)
    state, told_apart = game.new_initial_state(), 0
    for action in record:
        if not state.is_chance_node() and len(state.legal_actions()) > 1:
            twin = state.resample_from_infostate(state.current_player(), 77)
            told_apart += twin.notation() != state.notation()
            for slot, position in enumerate((state, twin)):
                search.start_at(slot, 9, position)
            driver.run()
            one, other = (search.result(slot) for slot in range(2))
            np.testing.assert_array_equal(one.visit_counts, other.visit_counts)
            np.testing.assert_array_equal(one.policy, other.policy)
            np.testing.assert_array_equal(one.q_values, other.q_values)
            assert one.root_value == other.root_value
        state.apply_action(action)
    assert told_apart > 0


def _game(game: Any, evaluate: HashEvaluator) -> list[int]:
    search = Search(game, GUMBEL.core(), num_slots=1, seed=3)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
    search.start(0, 1, NO_ACTIONS)
    driver.run()
    return [int(action) for action in search.record(0).actions]
