"""What the agent thinks of positions: the answers of `azq move` and `azq play`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.arena.expectation import expected_values
from azq.arena.points import outcome_names
from azq.arena.position import position
from azq.arena.searcher import Searcher
from azq.config import SearchConfig
from azq.search.evaluator import Evaluator
from azq.wire.messages import LATEST


@runtime_checkable
class WithOutcomes(Protocol):
    """An evaluator that knows the distribution of outcomes, where the game has one."""

    def outcomes(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probabilities (B, K) for the players to move."""


def analyse(
    game: _core.Game,
    evaluator: Evaluator,
    actions: Sequence[Sequence[int]],
    *,
    num_simulations: int,
    config: SearchConfig,
    weight_version: int = LATEST,
) -> list[dict[str, Any]]:
    """One answer per position (its actions from the initial state, or a `Line`), all searched together without exploration.

    An answer holds `action`, `action_text`, `value` (for the player to move, -1..1), `proven`, and per action (A long)
    `visit_counts`, `policy` and `q_values` (None where unvisited). Raises `IllegalActionError` for actions that do not replay.
    """
    if not actions:
        return []
    searcher = Searcher(game, evaluator, config, num_simulations, slots=len(actions), weight_version=weight_version)
    states = [position(game, history) for history in actions]
    return [as_answer(result, state) for result, state in zip(searcher.results(actions), states, strict=True)]


def as_answer(result: _core.Result, state: _core.State) -> dict[str, Any]:
    """A result in plain values, ready for JSON."""
    return {
        "action": int(result.best_action),
        "action_text": state.action_to_string(result.best_action),
        "value": float(result.root_value),
        "proven": bool(result.proven),
        "visit_counts": [int(count) for count in result.visit_counts],
        "policy": [round(float(share), 6) for share in result.policy],
        "q_values": [None if np.isnan(q) else round(float(q), 6) for q in result.q_values],
    }


def outcomes_of(game: _core.Game, evaluator: Evaluator, states: Sequence[_core.State]) -> list[dict[str, float]] | None:
    """The network's probability of each outcome by name for the players to move; None where game or evaluator has none."""
    if game.outcome_combination() is None or not isinstance(evaluator, WithOutcomes) or not states:
        return None
    rows = evaluator.outcomes(np.stack([state.packed_observation() for state in states]))
    names = outcome_names(game.name, rows.shape[1])
    return [{name: round(float(share), 4) for name, share in zip(names, row, strict=True)} for row in rows]


def over_chance(game: _core.Game, evaluator: Evaluator, state: _core.State, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer decided among the actions that the search visited, by their exact values over all chance outcomes that follow.

    Adds `expected_values`: per action (A long), None where not visited. Raises `ConfigError` as `expected_values` does.
    """
    player = state.current_player()
    visited = [action for action, count in enumerate(answer["visit_counts"]) if count > 0]
    candidates = visited or [answer["action"]]
    children = []
    for action in candidates:
        child = state.clone()
        child.apply_action(action)
        children.append(child)
    values = dict(zip(candidates, expected_values(game, evaluator, children, player), strict=True))
    best = max(candidates, key=lambda action: (values[action], answer["visit_counts"][action]))
    listed = [round(values[action], 6) if action in values else None for action in range(game.num_distinct_actions())]
    return {**answer, "action": best, "action_text": state.action_to_string(best), "expected_values": listed}
