"""Positions met by random play."""

from __future__ import annotations

import random

from azq.games import Game, State


def play_on(state: State, rng: random.Random, plies: int) -> State:
    """Random actions and outcomes, at most so many."""
    for _ in range(plies):
        if state.is_terminal():
            break
        state.apply_action(rng.choice(state.legal_actions()))
    return state


def decisions(game: Game, count: int, seed: int, plies: int) -> list[State]:
    """Positions where a player is to move, after up to so many plies."""
    rng = random.Random(seed)
    states: list[State] = []
    while len(states) < count:
        state = play_on(game.new_initial_state(), rng, rng.randrange(plies))
        while state.is_chance_node():
            state.apply_action(rng.choice(state.legal_actions()))
        if not state.is_terminal():
            states.append(state)
    return states
