"""No player can peek: whoever holds a whole state holds one in which all that is hidden from him was drawn anew."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from arena_doubles import CardGame, Cards

from azq import games
from azq.arena.player import Ground, Line, Player, from_the_start, position, seen
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.errors import EngineError

CARDS: Any = CardGame()
HIDDEN = [name for name in games.names() if games.load(name).is_hidden()]
DEAL = [4, 7, 0, 8, 1, 2]


def test_what_is_seen_keeps_what_the_mover_knows_and_nothing_else() -> None:
    real = position(CARDS, [*DEAL, 7])
    others: Counter[int] = Counter()
    for seed in range(300):
        state: Any = seen(CARDS, [*DEAL, 7], seed)
        assert state.information_state_string(1) == real.information_state_string(1)
        assert state.legal_actions() == real.legal_actions() == [0, 8]
        assert state.history() == []  # a history would tell the deal
        others[state.past[4]] += 1
    assert len(others) == 6  # any card that player 1 has not seen
    assert min(others.values()) > 20


def test_two_deals_that_the_mover_cannot_tell_apart_look_the_same() -> None:
    one, other = [*DEAL, 7], [7, 3, 8, 0, 5, 6, 7]
    for seed in range(50):
        assert seen(CARDS, one, seed).notation() == seen(CARDS, other, seed).notation()


def test_without_secrets_the_state_is_the_state() -> None:
    game = games.load("tic_tac_toe")
    assert seen(game, [4, 0], 1).notation() == position(game, [4, 0]).notation()


def test_a_line_goes_on_from_its_position() -> None:
    start: Any = Cards.parse("4 7 0 8 1 2")
    line = Line(start, [7])
    assert position(CARDS, line).notation() == "4 7 0 8 1 2 7"
    assert start.notation() == "4 7 0 8 1 2"
    with pytest.raises(EngineError, match="notation"):
        from_the_start("gtp:x", line)


def twins(game: games.Game, rng: random.Random, plies: int) -> tuple[list[int], games.State] | None:
    """A random position as a history, and another the mover cannot tell from it; None where the game ended before."""
    state = game.new_initial_state()
    left = plies
    while left or state.is_chance_node():
        if state.is_terminal():
            return None
        left -= not state.is_chance_node()
        state.apply_action(rng.choice(state.legal_actions()))
    if state.is_terminal():
        return None
    return state.history(), state.resample_from_infostate(state.current_player(), rng.getrandbits(40))


def chooser(name: str, game: games.Game) -> Player:
    return make_player(name, Ground(game, None, SearchConfig(), 1, seed=3))


@pytest.mark.skipif(not HIDDEN, reason="no game with hidden hands is built in")
@pytest.mark.parametrize("name", HIDDEN or ["none"])
@pytest.mark.parametrize("player", ["pimc:5", "rule"])
def test_players_choose_alike_where_they_know_the_same(name: str, player: str) -> None:
    game = games.load(name)
    rng = random.Random(7)
    found = [pair for number in range(40) if (pair := twins(game, rng, number % 8))]
    asked = [game.state_from_notation(other.notation()) for _, other in found]
    real = chooser(player, game).choose([history for history, _ in found])
    assert real == chooser(player, game).choose([Line(state) for state in asked])
