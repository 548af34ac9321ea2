"""What is known of a run's learning: figures of its newest games and of its curves, all that the rules see. Pure.

Letters: G games, T plies of one, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from azq.config import RunSections
from azq.games import Game
from azq.replay.window import window_size
from azq.samples.played import SHARED, PlayedGames
from azq.stats import wilson
from azq.status.curves import PAUSE_MS
from azq.wire.messages import GradeResult, HistoryPoint, SampleEvent

COVERED = 0.95  # of the games begin with one of so many openings
LOOKED_AT = 300  # games that are replayed once more, position by position
FOLDS = 20  # of the jackknife
EDGE = 0.1  # of the steps, at either end of a curve


@dataclass(frozen=True, slots=True)
class Counted:
    """So many of so many, with the 95 % interval of the share."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def low(self) -> float:
        return wilson(self.count, self.of)[0]

    @property
    def high(self) -> float:
        return wilson(self.count, self.of)[1]

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.of:,}"


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean with its standard error over whole games."""

    mean: float
    error: float


@dataclass(frozen=True, slots=True)
class PlayedFacts:
    """Figures of the newest games."""

    games: int
    wins: tuple[int, ...]  # by seat, alone
    shared: int
    rewarded: int  # games in which a result is not 0
    capped: Counted  # undecided games that a limit of plies ended
    longest: int  # plies
    openings: int  # the fewest that cover `COVERED` of the games
    opening_plies: int
    simulations: float  # of a searched ply
    legal: float  # actions of a searched ply
    sharpness: Measured | None  # entropy of policy targets, as a share of what is possible; None where nothing was to be chosen
    entropy: float  # of policy targets, nats
    slope: Measured | None  # of results over root values; None where values hardly differ
    spread: float  # standard deviation of results, which lie in [-1, 1]
    versions: tuple[int, int]  # of the weights
    mistakable: Counted  # looked-at positions whose observation also stands for one with other legal actions
    observations: Counted  # different ones, of different positions


@dataclass(frozen=True, slots=True)
class CurveFacts:
    """Figures of a run's history; of losses those of the first and the last tenth of the steps."""

    ran_s: float
    samples: int
    step: int
    first_step: int  # that the losses are known of
    loss_policy: tuple[float, float]
    loss_value: tuple[float, float]
    version: int
    window: int  # samples
    standing_s: float  # until now without a new sample, while the learner went on


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """What the rules themselves say, without any recorded game."""

    random_shared: Counted
    random_rewarded: Counted
    random_wins: tuple[int, ...]  # by seat
    openings: int  # that are possible; counted up to some dozens
    perfect: float | None  # result of perfect play for the first player; None where it is unknown


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a rule sees; what is not known is None."""

    settings: RunSections
    played: PlayedFacts | None = None
    curves: CurveFacts | None = None
    probe: ProbeFacts | None = None
    errors: Counted | None = None  # of the newest graded weights

    @property
    def mastered(self) -> bool:
        """Whether games look as they do because they are played well: graded moves are right, or games end as perfect play does."""
        if self.errors is not None and self.errors.high < 0.1:
            return True
        if self.played is None or self.probe is None or self.probe.perfect is None:
            return False
        played, by_chance = (self.played.shared, *self.played.wins), (self.probe.random_shared.count, *self.probe.random_wins)
        wanted = 0 if self.probe.perfect == 0 else 1 if self.probe.perfect > 0 else 2
        # Where random play ends so, too, it says nothing.
        return played[wanted] > 0.6 * self.played.games and by_chance[wanted] < 0.9 * self.probe.random_shared.of


def played_facts(game: Game, played: PlayedGames, events: Sequence[SampleEvent], opening_plies: int) -> PlayedFacts:
    """The figures of at least one game; `events` are those of the rows."""
    rows = played.rows
    winners = np.bincount(rows["winner"].astype(np.int64) + 1, minlength=game.num_players() + 1)
    counts = np.sort(np.unique(rows["opening"], return_counts=True)[1])[::-1]
    searched = rows["simulations"][np.isfinite(rows["simulations"])]
    longest = int(rows["length"].max())
    replays = [_Look.at(game, event, longest) for event in events[:: -(-len(events) // LOOKED_AT)]]
    uniform, entropy = (np.array([getattr(replayed, name) for replayed in replays]) for name in ("uniform", "entropy"))
    mistakable, observations = _observed(replays)
    won = rows["length"][rows["winner"] != SHARED]
    fixed = len(won) > 0 and float((won == longest).mean()) > 0.8  # all games take so long, by their rules
    return PlayedFacts(
        games=len(rows),
        wins=tuple(int(count) for count in winners[SHARED + 2 :]),
        shared=int(winners[SHARED + 1]),
        rewarded=sum(any(event.returns) for event in events),
        capped=Counted(0 if fixed else sum(replayed.capped for replayed in replays), len(replays)),
        longest=longest,
        openings=1 + int(np.searchsorted(counts.cumsum(), COVERED * len(rows))),
        opening_plies=opening_plies,
        simulations=float(searched.mean()) if len(searched) else 0.0,
        legal=float(np.mean([replayed.legal for replayed in replays if replayed.legal] or [0.0])),
        sharpness=_ratio(entropy, uniform) if uniform.sum() > 0 else None,
        entropy=float(entropy.sum() / max(1, sum(replayed.plies for replayed in replays))),
        slope=_slope(rows["bins"][len(rows) // 2 :].astype(np.float64)),
        spread=float(np.std([event.returns for event in events])),
        versions=(int(rows["version"].min()), int(rows["version"].max())),
        mistakable=mistakable,
        observations=observations,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """One game position by position."""

    capped: bool
    plies: int  # searched
    legal: float  # mean number of legal actions there
    uniform: float  # sum over plies of the greatest entropy there is
    entropy: float  # sum over plies of the target's
    seen: tuple[tuple[bytes, bytes, bytes], ...]  # observation, legal actions, actions that led there

    @classmethod
    def at(cls, game: Game, event: SampleEvent, longest: int) -> _Look:
        record = event.record
        actions = np.frombuffer(record.actions, "<u2")
        packed, masks, players, _ = game.replay(actions)
        searched = np.frombuffer(record.simulations, "<u2") > 0
        legal = masks.sum(axis=1)[searched].astype(np.float64)
        shares = np.frombuffer(record.policies, "<f2").astype(np.float64)
        shares = shares[shares > 0]
        # A board that is full leaves its last mover no choice; a limit of plies does not.
        cut = len(actions) == longest and masks[-1].sum() > 1 and event.returns.count(max(event.returns)) > 1
        capped = cut or bool(game.targets(actions)["truncated"])
        moved = np.flatnonzero(players >= 0)
        seen = tuple((packed[ply].tobytes(), masks[ply].tobytes(), record.actions[: 2 * ply]) for ply in moved)
        return cls(
            capped,
            len(legal),
            float(legal.mean()) if len(legal) else 0.0,
            float(np.log(np.maximum(legal, 1)).sum()),
            -float(shares @ np.log(shares)),
            seen,
        )


def _observed(replays: Sequence[_Look]) -> tuple[Counted, Counted]:
    """How many positions look like one with other legal actions, and how many different ones look different at all."""
    masks: dict[bytes, set[bytes]] = {}
    positions = {ways: (packed, mask) for replayed in replays for packed, mask, ways in replayed.seen}
    for packed, mask in positions.values():
        masks.setdefault(packed, set()).add(mask)
    mistakable = sum(len(masks[packed]) > 1 for packed, _ in positions.values())
    return Counted(mistakable, len(positions)), Counted(len(masks), len(positions))


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> Measured:
    """A ratio of sums over games."""
    ratio = above.sum() / below.sum()
    return Measured(float(ratio), float(np.sqrt(np.square(above - ratio * below).sum()) / below.sum()))


def _slope(bins: NDArray[np.float64]) -> Measured | None:
    """Of results over root values, (G, 3, BINS) of played.py, with a jackknife over blocks of games; None where values hardly differ."""
    number, values, results = bins[:, 0], bins[:, 1], bins[:, 2]
    mean, result = (np.divide(column, number, out=np.zeros_like(column), where=number > 0) for column in (values, results))
    sums = np.stack([(number * column).sum(axis=1) for column in (number > 0, mean, result, mean * mean, mean * result)], axis=1)
    total = sums.sum(axis=0)
    if len(bins) < 2 * FOLDS or total[0] < 1 or total[3] / total[0] - (total[1] / total[0]) ** 2 < 0.1**2:
        return None
    left = [_line(total - sums[fold::FOLDS].sum(axis=0)) for fold in range(FOLDS)]
    return Measured(_line(total), float(np.sqrt((FOLDS - 1) * np.var(left))))


def _line(sums: NDArray[np.float64]) -> float:
    count, x, y, xx, xy = sums
    return float((count * xy - x * y) / max(1e-12, count * xx - x * x))


def curve_facts(settings: RunSections, points: Sequence[HistoryPoint]) -> CurveFacts | None:
    """The figures of a history, oldest first; None without any."""
    if not points:
        return None
    last, samples = points[-1], max(point.samples for point in points)
    trained = [point for point in points if point.step]
    step = max((point.step for point in trained), default=0)
    first = trained[0].step if trained else 0
    edges = (
        [point for point in trained if point.step <= max(first, EDGE * step)],
        [point for point in trained if point.step >= (1 - EDGE) * step],
    )
    return CurveFacts(
        ran_s=math.fsum(_ran_s(points)),
        samples=samples,
        step=step,
        first_step=first,
        loss_policy=_ends(edges, "loss_policy"),
        loss_value=_ends(edges, "loss_value"),
        version=last.weight_version,
        window=window_size(samples, settings.learner),
        standing_s=_standing_s(points),
    )


def _ends(edges: Sequence[Sequence[HistoryPoint]], name: str) -> tuple[float, float]:
    """NaN where a tenth has no point."""
    first, last = (float(np.mean([getattr(point, name) for point in edge])) if edge else math.nan for edge in edges)
    return first, last


def _ran_s(points: Sequence[HistoryPoint]) -> Iterator[float]:
    for before, after in pairwise(points):
        if 0 < after.at_ms - before.at_ms <= PAUSE_MS:
            yield (after.at_ms - before.at_ms) / 1000


def _standing_s(points: Sequence[HistoryPoint]) -> float:
    """How long the learner has been training on without a new sample."""
    still = len(points) - 1
    while still and points[still - 1].samples == points[-1].samples:
        still -= 1
    tail = points[still:]
    return math.fsum(_ran_s(tail)) if tail[-1].step > tail[0].step else 0.0


def error_share(grades: Sequence[GradeResult]) -> Counted | None:
    """Errors of the newest graded weights, where there are positions."""
    graded = [grade for grade in grades if grade.positions]
    newest = max(graded, key=lambda grade: (grade.weight_version, grade.positions), default=None)
    return Counted(newest.errors, newest.positions) if newest else None
