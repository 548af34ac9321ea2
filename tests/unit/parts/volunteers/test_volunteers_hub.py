"""What a run's room is told and bounds: games as long as its rules allow, and the terms on which a tab gets them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from replay_games import play_game

from azq import games
from azq.config import RunSections
from azq.ledger.records import record_of
from azq.parts.volunteers.handouts import GatewayCounts, Terms
from azq.parts.volunteers.hub import RunHub, longest_bytes, make_hub
from azq.parts.volunteers.sessions import TabPatience
from azq.wire.arrays import size_of
from azq.wire.messages import GameRecord
from azq.wire.tabs import MAX_TAB_BYTES


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "beasty_bar", "backgammon", "2048"])
def test_no_game_is_longer_than_is_taken(name: str) -> None:
    game = games.load(name)
    longest = longest_bytes(game)
    assert longest <= MAX_TAB_BYTES
    assert all(size_of(play_game(game, uid).record) <= longest for uid in range(1, 4))
    state, plies, rng = game.new_initial_state(), 0, random.Random(1)
    while not state.is_terminal():
        state.apply_action(rng.choice(state.legal_actions()))
        plies += 1
    assert plies * 8 <= longest


def room_of(**sections: Any) -> RunHub:
    parsed = RunSections.model_validate(sections)
    return make_hub(record_of("r", parsed, Path("r"), created_ms=1), parsed, b"secret", TabPatience(30.0, 90.0), GatewayCounts())


def test_a_hand_out_has_one_version_and_one_budget() -> None:
    room = room_of(search={"num_simulations": 64})
    assert [room.terms(7, quality) for quality in (25, 50, 75, 100)] == [Terms(7, 32), Terms(7, 32), Terms(7, 48), Terms(7, 64)]
    told = room.play([(GameRecord(1), b"t")], Terms(7, 32))
    assert (told.version, told.search["num_simulations"]) == (7, 32)


def test_a_run_whose_rules_are_not_the_cores_has_a_room_too() -> None:
    assert room_of(run={"game": "nowhere.py:G"}).record.run == "r"
