"""What the agent thinks of positions: the answers of `azq move` and `azq play`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from azq import _core
from azq.arena.searcher import Searcher
from azq.config import SearchConfig
from azq.search.evaluator import Evaluator
from azq.wire.messages import LATEST


def analyse(
    game: _core.Game,
    evaluator: Evaluator,
    actions: Sequence[Sequence[int]],
    *,
    num_simulations: int,
    config: SearchConfig,
    weight_version: int = LATEST,
) -> list[dict[str, Any]]:
    """One answer per position (its actions from the initial state), all searched together without exploration.

    An answer holds `action`, `value` (for the player to move, -1..1), `proven`, and per action (A long) `visit_counts`,
    `policy` and `q_values` (None where unvisited). Raises `IllegalActionError` for actions that do not replay.
    """
    if not actions:
        return []
    searcher = Searcher(game, evaluator, config, num_simulations, slots=len(actions), weight_version=weight_version)
    return [as_answer(result) for result in searcher.results(actions)]


def as_answer(result: _core.Result) -> dict[str, Any]:
    """A result in plain values, ready for JSON."""
    return {
        "action": int(result.best_action),
        "value": float(result.root_value),
        "proven": bool(result.proven),
        "visit_counts": [int(count) for count in result.visit_counts],
        "policy": [round(float(share), 6) for share in result.policy],
        "q_values": [None if np.isnan(q) else round(float(q), 6) for q in result.q_values],
    }
