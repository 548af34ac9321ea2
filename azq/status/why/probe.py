"""What rules say by themselves: how random play ends, how many openings there are, how perfect play ends where that is soon found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from azq.games import Game, State
from azq.status.why.facts import Counted, ProbeFacts

RANDOM_GAMES = 200
RANDOM_PLIES = 20_000  # in all: a game in Python takes 20 us for one
NODES = 20_000  # positions in which perfect play is looked for
OPENINGS = 64  # that are told apart


def probe(game: Game, opening_plies: int) -> ProbeFacts:
    """Plays at random with a fixed seed, and searches small games to their ends."""
    rng, plies = np.random.default_rng(0), 0
    results: list[list[float]] = []
    while len(results) < RANDOM_GAMES and plies < RANDOM_PLIES:
        state = game.new_initial_state()
        while not state.is_terminal():
            state.apply_action(_random(state, rng))
            plies += 1
        results.append(state.returns())
    best = [[seat for seat, value in enumerate(result) if value == max(result)] for result in results]
    return ProbeFacts(
        random_shared=Counted(sum(len(each) > 1 for each in best), len(best)),
        random_rewarded=Counted(sum(any(result) for result in results), len(results)),
        random_wins=tuple(sum(each == [seat] for each in best) for seat in range(game.num_players())),
        openings=_openings(game.new_initial_state(), opening_plies),
        perfect=_perfect(game),
    )


def _random(state: State, rng: np.random.Generator) -> int:
    if state.is_chance_node():
        actions, chances = zip(*state.chance_outcomes(), strict=True)
        return int(rng.choice(actions, p=np.array(chances) / sum(chances)))
    return int(rng.choice(state.legal_actions()))


def _openings(state: State, plies: int) -> int:
    if not plies or state.is_terminal():
        return 1
    found = 0
    for action in state.legal_actions():
        after = state.clone()
        after.apply_action(action)
        found += _openings(after, plies - 1)
        if found >= OPENINGS:
            break
    return min(found, OPENINGS)


@dataclass(slots=True)
class _Spent:
    nodes: int = 0


def _perfect(game: Game) -> float | None:
    """The first player's result of perfect play, of two who know everything; None where it takes too long to find."""
    if game.num_players() != 2 or game.is_chance() or game.is_hidden():
        return None
    state = game.new_initial_state()
    try:
        value = _best(state, -1.0, 1.0, _Spent())
    except _TooLarge:
        return None
    return value if state.current_player() == 0 else -value


class _TooLarge(Exception):  # ends a search, and never leaves this file
    pass


def _best(state: State, low: float, high: float, spent: _Spent) -> float:
    """The value for the player to move (alpha-beta)."""
    spent.nodes += 1
    if spent.nodes > NODES:
        raise _TooLarge
    player, best = state.current_player(), -1.0
    for action in state.legal_actions():
        after = state.clone()
        after.apply_action(action)
        if after.is_terminal():
            value = after.returns()[player]
        elif after.current_player() == player:
            value = _best(after, low, high, spent)
        else:
            value = -_best(after, -high, -low, spent)
        best = max(best, value)
        low = max(low, best)
        if low >= high:
            break
    return best
