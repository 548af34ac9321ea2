"""Beasty Bar: what no player may know, how it is drawn again, and the greedy player, who must not know it either."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from reference.beasty_bar import BY_STRENGTH
from reference.random_play import decisions, play_on

from azq import _core, games
from azq.arena.rules import GreedyBeasty
from azq.config import SearchConfig
from azq.games import State
from azq.search.search import exploring

GAMES = {n: games.load("beasty_bar", players=n) for n in (2, 3, 4)}


@pytest.mark.parametrize("players", [2, 3, 4])
def test_redrawing_what_is_hidden_changes_nothing_a_player_knows(players: int) -> None:
    rng = random.Random(players)
    changed = 0
    for state in decisions(GAMES[players], 120, 20 + players, 24 * players):
        if rng.random() < 0.3:  # where somebody draws, too
            state.apply_action(rng.choice(state.legal_actions()))
        for viewer in range(players):
            other = state.resample_from_infostate(viewer, rng.randrange(2**32))
            assert other.information_state_string(viewer) == state.information_state_string(viewer)
            assert (other.packed_observation(viewer) == state.packed_observation(viewer)).all()
            if state.current_player() in (viewer, -4):
                assert other.legal_actions() == state.legal_actions()
            assert GAMES[players].state_from_notation(other.notation()).notation() == other.notation()  # a world with a true history
            changed += other.notation() != state.notation()
    assert changed > 100 * players


def chi_square(counts: Counter[Any], cells: int) -> float:
    """Pearson's statistic against equal shares, in standard deviations above its mean."""
    mean = sum(counts.values()) / cells
    statistic = sum((counts[key] - mean) ** 2 / mean for key in counts) + mean * (cells - len(counts))
    return float((statistic - (cells - 1)) / (2 * (cells - 1)) ** 0.5)


def hand_of(state: State, player: int) -> str:
    return state.notation().split("; ")[3].split()[1 + player]


def test_a_redrawn_hand_is_uniform() -> None:
    state = GAMES[2].new_initial_state()
    for _ in range(8):
        state.apply_action(state.legal_actions()[0])
    play_on(state, random.Random(3), 9)  # nine plies and draws on: player 1 has played twice
    held = Counter(hand_of(state.resample_from_infostate(0, seed), 1) for seed in range(21_000))
    assert len(held) == 210  # four of ten
    assert abs(chi_square(held, 210)) < 4.0


def test_a_redrawn_history_is_uniform() -> None:
    """All orders in which the other may have drawn, given what he has played: near the end they can be counted."""
    state = GAMES[2].new_initial_state()
    for _ in range(8):
        state.apply_action(state.legal_actions()[0])
    play_on(state, random.Random(4), 3)
    assert "; draws 1;" in state.notation()  # one card played by each, and player 1 is about to draw
    worlds = (state.resample_from_infostate(0, seed).information_state_string(1) for seed in range(40_000))
    orders = Counter(next(line for line in world.splitlines() if line.startswith("drawn")) for world in worlds)
    assert len(orders) == 4 * 11 * 10 * 9  # where the played card came, and the three others in order
    assert abs(chi_square(orders, 3960)) < 4.0


def test_hidden_targets_are_the_others_hands() -> None:
    rng = random.Random(5)
    for players in (2, 3, 4):
        game = GAMES[players]
        state = play_on(game.new_initial_state(), rng, 10**3)
        history = state.history()
        targets = game.targets(np.array(history, dtype=np.uint16))
        assert targets["margins"].tolist() == pytest.approx([state.margin(player) for player in range(players)])
        state = game.new_initial_state()
        for ply, action in enumerate(history):
            if not state.is_chance_node():
                wanted = []
                for seat in range(1, players):
                    hand = hand_of(state, (state.current_player() + seat) % players)
                    wanted += [int(name[:2].capitalize() in hand) for name in BY_STRENGTH]
                assert targets["hidden"][ply].tolist() == wanted
            state.apply_action(action)


def test_a_search_cannot_tell_what_its_player_cannot() -> None:
    config = exploring(SearchConfig(num_simulations=64))
    for state in decisions(GAMES[2], 12, 8, 48):
        seen = []
        for world in (state, state.resample_from_infostate(state.current_player(), 1)):
            search = _core.Search(GAMES[2], config, num_slots=1, seed=7, autoplay=False)
            search.start_at(0, 3, world)
            run_flat(search)
            seen.append(search.result(0))
        assert seen[0].visit_counts.tolist() == seen[1].visit_counts.tolist()
        assert seen[0].root_value == seen[1].root_value


def run_flat(search: _core.Search) -> None:
    """Searches with equal priors and values of nought."""
    packed, slots = np.zeros((1, GAMES[2].packed_size()), np.uint8), np.zeros(1, np.int32)
    while search.collect(packed, slots):
        search.apply(np.zeros((1, 33), np.float16), np.zeros((1, 1), np.float16))


def play_match(players: list[GreedyBeasty | None], count: int, seed: int, table: int = 2) -> float:
    """Mean result of players[0] at a table of players[1]; None plays at random."""
    rng = random.Random(seed)
    total = 0.0
    for number in range(count):
        state, own = GAMES[table].new_initial_state(), number % table
        while not state.is_terminal():
            player = None if state.is_chance_node() else players[0 if state.current_player() == own else 1]
            action = rng.choice(state.legal_actions()) if player is None else player.best_action(state)
            state.apply_action(action)
        total += state.returns()[own]
    return total / count


def test_the_greedy_player_beats_random_play() -> None:
    assert play_match([GreedyBeasty(), None], 250, seed=1) > 0.7  # a share of 0.85; measured 0.91
    assert play_match([GreedyBeasty(), None], 60, seed=2, table=4) > 0.3


def test_the_greedy_player_does_not_peek() -> None:
    greedy = GreedyBeasty()
    for players in (2, 4):
        for state in decisions(GAMES[players], 60, players, 24 * players):
            worlds = [state.resample_from_infostate(state.current_player(), seed) for seed in range(3)]
            assert len({greedy.best_action(world) for world in (state, *worlds)}) == 1
