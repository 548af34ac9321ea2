"""Exact values over chance: every outcome up to the next decision, weighed by its probability, evaluated in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from azq import _core
from azq.arena.evaluate import values_of
from azq.arena.tick import Tick, no_tick
from azq.errors import ConfigError
from azq.search.evaluator import Evaluator
from azq.wire.messages import LATEST

MAX_LEAVES = 1 << 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """A decision or an end that chance can lead to."""

    owner: int  # index of the state it came from
    probability: float
    state: _core.State


def expected_values(
    game: _core.Game,
    evaluator: Evaluator,
    states: Sequence[_core.State],
    player: int,
    *,
    weight_version: int = LATEST,
    tick: Tick = no_tick,
) -> list[float]:
    """What each state is worth to one player, over all outcomes of its chance nodes up to the next decisions.

    Ends count as they are; decisions as the evaluator values them for their player to move, whoever that is. Raises
    `ConfigError` for a game with hidden hands, where a state knows more than its player, and for more than `MAX_LEAVES` outcomes.
    """
    if game.is_hidden():
        raise ConfigError(f"the expectation over chance would see the hidden cards of {game.name}; let the search sample them")
    leaves: list[Leaf] = []
    for owner, state in enumerate(states):
        for leaf in _leaves(owner, state, 1.0):
            leaves.append(leaf)
            if len(leaves) > MAX_LEAVES:
                raise ConfigError(
                    f"chance has more than {MAX_LEAVES} outcomes before the next decision in {game.name}; let the search sample"
                )
    totals = [0.0] * len(states)
    for leaf, value in zip(leaves, _values(evaluator, leaves, player, game.num_players(), weight_version, tick), strict=True):
        totals[leaf.owner] += leaf.probability * value
    return totals


def for_player(values: Sequence[float], mover: int, player: int, num_players: int) -> float:
    """A player's entry of the values of a position, which are relative to its player to move: one of two, or one a seat. Pure."""
    if len(values) == 1:
        return float(values[0]) if mover == player else -float(values[0])
    return float(values[(player - mover) % num_players])


def _leaves(owner: int, state: _core.State, probability: float) -> Iterator[Leaf]:
    if not state.is_chance_node():
        yield Leaf(owner, probability, state)
        return
    for outcome, share in state.chance_outcomes():
        child = state.clone()
        child.apply_action(outcome)
        yield from _leaves(owner, child, probability * share)


def _values(
    evaluator: Evaluator, leaves: Sequence[Leaf], player: int, num_players: int, weight_version: int, tick: Tick
) -> Iterator[float]:
    open_states = [leaf.state for leaf in leaves if not leaf.state.is_terminal()]
    found = iter(values_of(evaluator, open_states, weight_version=weight_version, tick=tick)) if open_states else iter(())
    for leaf in leaves:
        if leaf.state.is_terminal():
            yield leaf.state.returns()[player]
        else:
            yield for_player(next(found), leaf.state.current_player(), player, num_players)
