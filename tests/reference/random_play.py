"""Positions met by random play."""

from __future__ import annotations

import random

from azq.games import Game, State


def settle(state: State, rng: random.Random) -> None:
    """Lets chance act, by its probabilities, until a player is to move."""
    while state.is_chance_node():
        outcomes, weights = zip(*state.chance_outcomes(), strict=True)
        state.apply_action(rng.choices(outcomes, weights)[0])


def play_out(state: State, rng: random.Random) -> State:
    """Random actions to the end, chance by its probabilities."""
    while not state.is_terminal():
        settle(state, rng)
        if not state.is_terminal():
            state.apply_action(rng.choice(state.legal_actions()))
    return state


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
