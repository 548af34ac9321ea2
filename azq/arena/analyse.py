"""What the agent thinks of positions: the answers of `azq move` and `azq play`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.arena.player import position
from azq.arena.searcher import Searcher, values_of
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.search.evaluator import Evaluator, WithOutcomes
from azq.search.search import Result
from azq.wire.messages import LATEST

MAX_LEAVES = 1 << 16
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


def over_chance(game: _core.Game, evaluator: Evaluator, state: _core.State, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer decided among the actions that the search visited, by their exact values over all chance outcomes that follow.

    Adds `expected_values`: per action (A long), None where not visited. Raises `ConfigError` as `expected_values` does.
    """
    player = state.current_player()
    visited = [action for action, count in enumerate(answer["visit_counts"]) if count > 0]
    candidates = visited or [answer["action"]]
    children = [_after(state, action) for action in candidates]
    values = dict(zip(candidates, expected_values(game, evaluator, children, player), strict=True))
    best = max(candidates, key=lambda action: (values[action], answer["visit_counts"][action]))
    listed = [round(values[action], 6) if action in values else None for action in range(game.num_distinct_actions())]
    decided = {**answer, "action": best, "action_text": state.action_to_string(best), "expected_values": listed}
    if best != answer["action"]:  # the line is that of another move
        decided |= {"principal_variation": [best], "principal_variation_texts": [decided["action_text"]]}
    return decided


def expected_values(game: _core.Game, evaluator: Evaluator, states: Sequence[_core.State], player: int) -> list[float]:
    """What each state is worth to one player, over all outcomes of its chance nodes up to the next decisions.

    Ends count as they are; decisions as the evaluator values them for their player to move. Raises
    `ConfigError` for a game with hidden hands, where a state knows more than its player, and for more than `MAX_LEAVES` outcomes.
    """
    if game.is_hidden():
        raise ConfigError(f"the expectation over chance would see the hidden cards of {game.name}; let the search sample them")
    leaves: list[tuple[int, float, _core.State]] = []  # the index of the state it came from, its probability, and itself
    for owner, state in enumerate(states):
        for probability, leaf in _over_chance(state, 1.0):
            leaves.append((owner, probability, leaf))
            if len(leaves) > MAX_LEAVES:
                raise ConfigError(
                    f"chance has more than {MAX_LEAVES} outcomes before the next decision in {game.name}; let the search sample"
                )
    decisions = [leaf for _, _, leaf in leaves if not leaf.is_terminal()]
    result = iter(values_of(evaluator, decisions) if decisions else ())
    totals = [0.0] * len(states)
    for owner, probability, leaf in leaves:
        ended = leaf.is_terminal()
        value = leaf.returns()[player] if ended else for_player(next(result), leaf.current_player(), player, game.num_players())
        totals[owner] += probability * value
    return totals


def for_player(values: Sequence[float], mover: int, player: int, num_players: int) -> float:
    """A player's entry of the values of a position, which are relative to its player to move: one of two, or one a seat. Pure."""
    if len(values) == 1:
        return float(values[0]) if mover == player else -float(values[0])
    return float(values[(player - mover) % num_players])


def _over_chance(state: _core.State, probability: float) -> Iterator[tuple[float, _core.State]]:
    """The decisions and ends that chance can lead to, with their probabilities."""
    if not state.is_chance_node():
        yield probability, state
        return
    for outcome, share in state.chance_outcomes():
        yield from _over_chance(_after(state, outcome), probability * share)


def _after(state: _core.State, action: int) -> _core.State:
    child = state.clone()
    child.apply_action(action)
    return child
