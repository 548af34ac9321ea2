"""One run at a glance: every figure of the live table, as a pure function of what was read. Works without the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from azq.arena.players import version_of
from azq.config import NetworkConfig
from azq.ledger.records import known_section
from azq.ledger.rules.runs import max_waiting
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState, RunView
from azq.status.state import SILENT, stalled
from azq.status.workers import WorkerStatus, Workforce, team_of, worker_status
from azq.wire.messages import GradeResult, Heartbeat, LearnerStatus, MatchResult, RunRecord, WeightEvent

_DEFAULT = NetworkConfig()

if TYPE_CHECKING:
    from azq.arena.rating import Rating


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """A network's kind and size; the present one is that of the newest weights, None before there are any that say theirs."""

    kind: str
    configured_blocks: int  # network.blocks, what learner.growth starts from
    configured_channels: int
    blocks: int | None = None
    channels: int | None = None

    def __str__(self) -> str:
        configured = f"{self.configured_blocks}x{self.configured_channels}"
        now = configured if self.blocks is None else f"{self.blocks}x{self.channels}"
        return now if now == configured else f"{now}, from {configured}"


class _Network(msgspec.Struct):
    kind: str = _DEFAULT.kind
    blocks: int = _DEFAULT.blocks
    channels: int = _DEFAULT.channels


def network_status(record: RunRecord, weights: WeightEvent | None) -> NetworkStatus:
    """What a run's settings name and its newest weights have; the defaults where settings do not parse."""
    configured = known_section(record, "network", _Network)
    now = (weights.blocks, weights.channels) if weights is not None and weights.blocks else (None, None)
    return NetworkStatus(configured.kind, configured.blocks, configured.channels, *now)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What was read of one run."""

    view: RunView
    counts: LedgerCounts
    jobs: tuple[JobView, ...] = ()  # queued and leased
    learner: LearnerStatus | None = None
    weights: WeightEvent | None = None
    matches: tuple[MatchResult, ...] = ()  # newest first
    grades: tuple[GradeResult, ...] = ()  # newest first
    ratings: Sequence[Rating] = ()  # of the matches
    workers: tuple[Heartbeat, ...] = ()


@dataclass(frozen=True, slots=True)
class Strength:
    """How well the newest evaluated weights play; None where nothing was measured yet."""

    graded_version: int | None = None
    error_share: float | None = None  # of graded moves that lose a result class
    graded_positions: int = 0
    rated_version: int | None = None
    elo: float | None = None
    elo_low: float | None = None
    elo_high: float | None = None


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The ledger's counts and whether they add up."""

    opened: int
    finished: int
    open: int
    abandoned: int
    inserted: int
    in_transit: int
    duplicates_dropped: int
    balanced: bool


@dataclass(frozen=True, slots=True)
class RanksStatus:
    """How the processes do that train together; times are of one training step."""

    configured: int = 1
    healthy: int = 0  # 0: no live learner
    failed: int = 0  # configured and not training
    losses: int = 0  # times that a rank was lost, since the learner's start
    fallback_active: bool = False  # training goes on with fewer ranks than configured
    samples_processed: int = 0  # trained on, of the whole run
    batch_s: float = 0.0
    sync_s: float = 0.0  # of it, waiting for other ranks
    efficiency: float = 1.0  # samples a second / what the ranks would do if none waited for another


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Everything the live table shows."""

    run: str
    state: RunState
    reason: str
    draining: bool  # ended or paused, yet workers still hold games
    active_s: float
    until: dict[str, float]
    progress: float
    games_per_s: float
    simulations_per_s: float
    evaluations_per_s: float
    mean_batch: float
    network_busy: float  # share of wall time in forward passes, mean over the inference workers
    open_games: int
    samples: int
    window: int  # samples that the learner draws from
    samples_per_s: float
    samples_per_insert: float
    learner_live: bool
    learner_step: int
    loss_policy: float | None
    loss_value: float | None
    learning_rate: float | None
    selfplay_stalled: bool
    learner_waiting: bool
    weight_version: int
    policy_lag: float
    strength: Strength
    ledger: LedgerStatus
    jobs_queued: int
    jobs_leased: int
    workers: tuple[WorkerStatus, ...]
    ranks: RanksStatus = field(default=RanksStatus())
    conditions: tuple[str, ...] = field(default=())  # what an operator should know: unroutable jobs and the like
    network: NetworkStatus | None = None
    not_served: dict[str, str] = field(default_factory=dict)  # host -> why its inference workers do not serve this run


def summarise(facts: RunFacts, now_ms: int, conditions: Sequence[str] = (), team: Workforce | None = None) -> RunStatus:
    """The status of one run; `team` are its workers, where not those of `facts`."""
    view, counts, name = facts.view, facts.counts, facts.view.record.run
    team = team or team_of([beat for beat in facts.workers if beat.run in ("", name)], partial(worker_status, now_ms=now_ms))
    leased = sum(job.state is JobState.LEASED for job in facts.jobs)
    not_served = {beat.host: beat.unserved[name] for beat in team.beats if name in beat.unserved}
    notes = {beat.worker: beat.note for beat in team.beats if beat.note}
    version = max(facts.weights.version if facts.weights else 0, (facts.learner or SILENT).weight_version)
    return RunStatus(
        run=name,
        state=view.state,
        reason=view.reason,
        draining=view.state is not RunState.RUNNING and leased > 0,
        active_s=view.active_ms / 1000,
        until=dict(view.record.until),
        **asdict(team.rates),
        **_learner_figures(facts.learner),
        open_games=counts.open,
        selfplay_stalled=bool(stalled(facts.learner, counts, max_waiting(view.record))),
        weight_version=version,
        policy_lag=team.lag(name, version),
        strength=strength(facts.grades, facts.ratings),
        ledger=ledger_status(counts),
        jobs_queued=len(facts.jobs) - leased,
        jobs_leased=leased,
        workers=team.workers,
        network=network_status(view.record, facts.weights),
        conditions=(*conditions, *by_saying("not served by ", not_served), *by_saying("", notes), *failed_matches(facts.matches)),
        not_served=not_served,
    )


def _learner_figures(live: LearnerStatus | None) -> dict[str, Any]:
    """What a learner tells of a run, by the names in `RunStatus`."""
    learner = live or SILENT
    return {
        "progress": learner.progress,
        "samples": learner.samples_inserted,
        "window": learner.window,
        "samples_per_s": learner.samples_per_s,
        "samples_per_insert": learner.samples_consumed / learner.samples_inserted if learner.samples_inserted else 0.0,
        "learner_live": live is not None,
        "learner_step": learner.step,
        "loss_policy": learner.loss_policy if learner.step else None,
        "loss_value": learner.loss_value if learner.step else None,
        "learning_rate": live.learning_rate if live else None,
        "learner_waiting": learner.waiting,
        "ranks": ranks_status(live) if live else RanksStatus(),
    }


def ranks_status(learner: LearnerStatus) -> RanksStatus:
    """What a live learner says of its ranks."""
    failed = max(0, learner.ranks - learner.ranks_healthy)
    return RanksStatus(
        configured=learner.ranks,
        healthy=learner.ranks_healthy,
        failed=failed,
        losses=learner.rank_failures,
        fallback_active=failed > 0,
        samples_processed=learner.samples_consumed,
        batch_s=learner.batch_s,
        sync_s=learner.sync_s,
        efficiency=learner.scaling_efficiency,
    )


def by_saying(prefix: str, said: Mapping[str, str]) -> list[str]:
    """What hosts or workers say, a line for each saying that names those who say it."""
    names: dict[str, list[str]] = {}
    for name, saying in sorted(said.items()):
        names.setdefault(saying, []).append(name)
    return [f"{prefix}{', '.join(named)}: {saying}" for saying, named in names.items()]


def failed_matches(matches: Sequence[MatchResult]) -> list[str]:
    """The opponents whose newest match an engine ended (matches come newest first), and why."""
    newest: dict[str, MatchResult] = {}
    for match in matches:
        newest.setdefault(match.spec.second, match)
    return [f"the match against {opponent} failed: {match.error}" for opponent, match in newest.items() if match.error]


def ledger_status(counts: LedgerCounts) -> LedgerStatus:
    """The counts, with the verdict."""
    return LedgerStatus(**{one.name: getattr(counts, one.name) for one in fields(LedgerStatus)})


def strength(grades: Sequence[GradeResult], ratings: Sequence[Rating]) -> Strength:
    """The newest grade (grades come newest first) and the rating of the highest weight version."""
    grade = next((grade for grade in grades if grade.positions), None)
    rated = max(
        ((version, rating) for rating in ratings if (version := version_of(rating.player)) is not None),
        default=None,
        key=lambda pair: pair[0],
    )
    return Strength(
        graded_version=grade.weight_version if grade else None,
        error_share=grade.errors / grade.positions if grade else None,
        graded_positions=grade.positions if grade else 0,
        rated_version=rated[0] if rated else None,
        elo=rated[1].elo if rated else None,
        elo_low=rated[1].low if rated else None,
        elo_high=rated[1].high if rated else None,
    )
