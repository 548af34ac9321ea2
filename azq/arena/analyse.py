"""What the agent thinks of positions: the answers of `azq move` and `azq play`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.arena.player import position
from azq.arena.searcher import Searcher
from azq.config import SearchConfig
from azq.search.evaluator import Evaluator, WithOutcomes
from azq.search.search import Result
from azq.wire.messages import LATEST

OUTCOME_NAMES: dict[str, tuple[str, ...]] = {
    "backgammon": ("win", "win_gammon", "win_backgammon", "lose_gammon", "lose_backgammon")  # "gammon": or better
}


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

    An answer holds `action`, `action_text`, `value` (for the player to move, -1..1), `proven`, per action (A long) `visit_counts`,
    `policy`, `priors` and `q_values` (None where unvisited), and `principal_variation` with its texts, the play that is expected up
    to chance or what is hidden. Raises `IllegalActionError` for actions that do not replay.
    """
    if not actions:
        return []
    searcher = Searcher(game, evaluator, config, num_simulations, slots=len(actions), weight_version=weight_version)
    states = [position(game, history) for history in actions]
    searched = searcher.results_and_lines(actions)
    return [as_answer(result, line, state) for (result, line), state in zip(searched, states, strict=True)]


def as_answer(result: Result, line: list[int], state: _core.State) -> dict[str, Any]:
    """A result in plain values, ready for JSON."""
    return {
        "action": int(result.best_action),
        "action_text": state.action_to_string(result.best_action),
        "value": float(result.root_value),
        "proven": bool(result.proven),
        "visit_counts": [int(count) for count in result.visit_counts],
        "policy": [round(float(share), 6) for share in result.policy],
        "priors": [round(float(share), 6) for share in softmax(result.prior_logits)],
        "q_values": [None if np.isnan(q) else round(float(q), 6) for q in result.q_values],
        "principal_variation": line,
        "principal_variation_texts": texts_of(state, line),
    }


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shares (A,); illegal moves, of -inf, have none."""
    raised = np.exp(logits - logits.max())
    return np.asarray(raised / raised.sum(), np.float32)


def texts_of(state: _core.State, line: Sequence[int]) -> list[str]:
    """How people write the moves of a line from this position, which stays as it is."""
    after, texts = state.clone(), []
    for action in line:
        texts.append(after.action_to_string(action))
        after.apply_action(action)
    return texts


def outcomes_of(game: _core.Game, evaluator: Evaluator, states: Sequence[_core.State]) -> list[dict[str, float]] | None:
    """The network's probability of each outcome by name for the players to move; None where game or evaluator has none."""
    if game.outcome_combination() is None or not isinstance(evaluator, WithOutcomes) or not states:
        return None
    rows = evaluator.outcomes(np.stack([state.packed_observation() for state in states]))
    names = OUTCOME_NAMES.get(game.name, ())
    if len(names) != rows.shape[1]:
        names = tuple(f"outcome_{number}" for number in range(rows.shape[1]))
    return [{name: round(float(share), 4) for name, share in zip(names, row, strict=True)} for row in rows]
