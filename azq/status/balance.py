"""Whether a game is fair and what of it is used, from the games that a run recorded. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from azq.errors import NotFound
from azq.games import Game
from azq.notation.units import unit
from azq.stats import wilson
from azq.wire.messages import SampleEvent

QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
SLICES = 5
OPENINGS = 10  # that are listed


@dataclass(frozen=True, slots=True)
class ResultShare:
    """Points of games, a shared first place in equal parts; the 95 % interval is Wilson's, wider than need be where games are drawn."""

    games: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OpeningShare:
    """The first plies, those of chance included, and the share of the games that begin so."""

    actions: list[int]
    share: float


@dataclass(frozen=True, slots=True)
class Balance:
    """A game as it was played, oldest games first. Results are of games that no random plies began, where there are any."""

    games: int
    first: ResultShare  # of the seat that decides first
    seats: list[ResultShare]
    even: float  # each seat's share of a fair game
    draws: float  # share of games without a single winner
    length: list[int]  # plies at `QUANTILES`
    forced: float  # share of decisions with one legal action
    never_legal: list[int]  # actions
    never_played: list[int]  # actions that were legal
    openings: int  # different ones
    commonest: list[OpeningShare]
    trend: list[ResultShare]  # the first player's, in equal slices of the games
    scores: list[float] = field(
        default_factory=list
    )  # of a game for one, to which fairness does not apply: quantiles, in the game's unit; else none
    mean_scores: list[float] = field(default_factory=list)  # of the same slices


@dataclass(frozen=True, slots=True)
class _Walk:
    """One game, replayed."""

    first: int  # seat
    begun: int  # plies before its decision
    legal: list[int]  # how many actions, a decision


def balance(rules: Game, events: Iterable[SampleEvent], opening_plies: int = 2) -> Balance:
    """The figures of games, oldest first. Raises `NotFound` without any, `IllegalActionError` for those of other rules."""
    legal, played = np.zeros((2, rules.num_distinct_actions()), bool)
    results, lengths, decisions, searched = [], [], [], []
    points_of = unit(rules).convert
    openings: Counter[tuple[int, ...]] = Counter()
    for event in events:
        actions = np.frombuffer(event.record.actions, "<u2").tolist()
        walk = _walk(rules, actions, legal, played)
        best = np.asarray(event.returns) == max(event.returns)
        points = best / best.sum()
        results.append([points_of(event.returns[0]), points[walk.first], *points])
        searched.append(np.frombuffer(event.record.simulations, "<u2")[walk.begun] > 0)
        lengths.append(len(actions))
        decisions += walk.legal
        openings[tuple(actions[:opening_plies])] += 1
    if not results:
        raise NotFound("no finished games to look at yet; ask again once some were played")
    count = len(results)
    judged = np.array(results)[searched if any(searched) else slice(None)]
    scores, first, seats = judged[:, 0], judged[:, 1], judged[:, 2:]
    parts = np.array_split(np.arange(len(judged)), min(SLICES, len(judged)))
    alone = rules.num_players() == 1
    return Balance(
        games=count,
        first=_share(first),
        seats=[_share(seat) for seat in seats.T],
        even=1 / rules.num_players(),
        draws=float(np.mean(seats.max(axis=1) < 1)),
        length=np.quantile(lengths, QUANTILES, method="nearest").tolist(),
        forced=decisions.count(1) / max(1, len(decisions)),
        never_legal=np.flatnonzero(~legal).tolist(),
        never_played=np.flatnonzero(legal & ~played).tolist(),
        openings=len(openings),
        commonest=[OpeningShare(list(actions), games / count) for actions, games in openings.most_common(OPENINGS)],
        trend=[_share(first[part]) for part in parts],
        scores=np.quantile(scores, QUANTILES, method="nearest").tolist() if alone else [],
        mean_scores=[float(scores[part].mean()) for part in parts] if alone else [],
    )


def _walk(rules: Game, actions: Sequence[int], legal: np.ndarray, played: np.ndarray) -> _Walk:
    """Replays a game and marks what was legal and what was played."""
    choices: list[int] = []
    state, first, begun = rules.new_initial_state(), 0, 0
    for ply, action in enumerate(actions):
        if not state.is_chance_node():
            if not choices:
                first, begun = state.current_player(), ply
            mask = np.asarray(state.legal_actions_mask(), bool)
            choices.append(int(mask.sum()))
            legal |= mask
            played[action] = True
        state.apply_action(action)
    return _Walk(first, begun, choices)


def _share(points: NDArray[np.float64]) -> ResultShare:
    return ResultShare(len(points), float(points.mean()), *wilson(float(points.sum()), len(points)))
