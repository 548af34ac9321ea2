"""How much a network's judgement of graded positions loses, without the luck of which move it happens to choose.

The loss of the chosen move jumps as one move overtakes another; the expected loss over all shares moves with every weight. So two networks
differ clearly in regret on far fewer positions than by their shares of errors.

Letters: N positions, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.arena.analyse import softmax
from azq.arena.grade import Mark, judge, line_of, marks
from azq.arena.player import Player
from azq.arena.players import NetworkPlayer
from azq.games import Game
from azq.ratings.positions import Position
from azq.search.search import Result

BINS = 10  # of the reliability curve, over values from -1 to 1


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over positions with its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Mean:
        """Of one position or none there is no error: infinity."""
        count = len(numbers)
        return cls(float(numbers.mean()) if count else 0.0, float(numbers.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf)


@dataclass(frozen=True, slots=True)
class Regret:
    """Of one network on N positions, in the unit of the graded values; (N,) each."""

    policy: NDArray[np.float64]  # expected loss of a move drawn from the network's own shares
    search: NDArray[np.float64]  # and from those that its search ends with
    search_value: NDArray[np.float64]  # the search's value
    best: NDArray[np.float64]  # the exact one, of the best move

    @property
    def value_error(self) -> NDArray[np.float64]:
        """Squared error of the value (N,): the Brier score, but for the scale."""
        return np.square(self.search_value - self.best)


def judged(game: Game, player: Player, positions: Sequence[Position]) -> tuple[list[Mark], Regret | None]:
    """The marks of a player's moves, and a network's regret where every graded move is one action; raises as `marks`."""
    if not isinstance(player, NetworkPlayer) or any(len(actions) > 1 for graded in positions for actions in graded.moves):
        return marks(game, player, positions), None
    results = player.results([line_of(game, graded) for graded in positions])
    chosen = zip(positions, results, strict=True)
    return [judge(graded, graded.value(result.best_action)) for graded, result in chosen], regret_of(positions, results)


def regret_of(positions: Sequence[Position], results: Sequence[Result]) -> Regret:
    """Positions whose moves are one action each, and what a search came to there. Pure."""
    rows = [_row(*pair) for pair in zip(positions, results, strict=True)]
    return Regret(*np.asarray(rows, np.float64).reshape(-1, 4).T)


def reliability(regret: Regret) -> list[tuple[float, float, int]]:
    """Mean search value, mean exact value and count of each bin of search values; a calibrated network has equal means. Pure."""
    places = np.minimum(((regret.search_value + 1) / 2 * BINS).astype(int), BINS - 1)
    chosen = [places == place for place in range(BINS)]
    return [(float(regret.search_value[rows].mean()), float(regret.best[rows].mean()), int(rows.sum())) for rows in chosen if rows.any()]


def calibration_error(regret: Regret) -> float:
    """Mean distance of search values from exact ones, over the bins of `reliability` (Guo et al., ICML 2017). Pure."""
    rows = reliability(regret)
    return sum(abs(value - true) * count for value, true, count in rows) / max(1, sum(count for *_, count in rows))


def _row(graded: Position, result: Result) -> tuple[float, float, float, float]:
    losses = np.full(len(result.policy), graded.best - min(graded.moves.values()))  # of a move that is not listed, as `judge` has it
    for (action,), value in graded.moves.items():
        losses[action] = graded.best - value
    return float(softmax(result.prior_logits) @ losses), float(result.policy @ losses), float(result.root_value), graded.best
