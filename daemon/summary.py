"""One run at a glance: every figure of the live table, as a pure function of what was read. Works without the daemon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from azq import metrics
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState, RunView
from azq.wire.messages import GradeResult, Heartbeat, LearnerStatus, MatchResult, WeightEvent


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
    workers: tuple[Heartbeat, ...] = ()


class Rated(Protocol):
    """What a rating tells of one player."""

    @property
    def player(self) -> str: ...
    @property
    def elo(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


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
class FleetRates:
    """What a set of workers does together."""

    games_per_s: float
    simulations_per_s: float
    evaluations_per_s: float
    mean_batch: float
    network_busy: float


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
class WorkerStatus:
    """One live process."""

    worker: str
    role: str
    host: str
    pid: int
    version: str
    run: str
    queues: tuple[str, ...]
    tags: tuple[str, ...]
    slots: int
    age_s: float  # since its last heartbeat
    up_s: float
    rates: dict[str, float]
    weight_versions: dict[str, int]


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
    conditions: tuple[str, ...] = field(default=())  # what an operator should know: unroutable jobs and the like


def summarise(facts: RunFacts, now_ms: int, ratings: Sequence[Rated] = (), conditions: Sequence[str] = ()) -> RunStatus:
    """The status of one run; `ratings` are those of its matches."""
    name = facts.view.record.run
    learner = facts.learner
    workers = [beat for beat in facts.workers if beat.run in ("", name)]
    rates = fleet_rates(workers)
    leased = sum(view.state is JobState.LEASED for view in facts.jobs)
    version = max(facts.weights.version if facts.weights else 0, learner.weight_version if learner else 0)
    return RunStatus(
        run=name,
        state=facts.view.state,
        reason=facts.view.reason,
        draining=facts.view.state is not RunState.RUNNING and leased > 0,
        active_s=facts.view.active_ms / 1000,
        until=dict(facts.view.record.until),
        progress=learner.progress if learner else 0.0,
        games_per_s=rates.games_per_s,
        simulations_per_s=rates.simulations_per_s,
        evaluations_per_s=rates.evaluations_per_s,
        mean_batch=rates.mean_batch,
        network_busy=rates.network_busy,
        open_games=facts.counts.open,
        samples=learner.samples_inserted if learner else 0,
        window=learner.window if learner else 0,
        samples_per_s=learner.samples_per_s if learner else 0.0,
        samples_per_insert=learner.samples_consumed / learner.samples_inserted if learner and learner.samples_inserted else 0.0,
        learner_live=learner is not None,
        learner_step=learner.step if learner else 0,
        loss_policy=learner.loss_policy if learner and learner.step else None,
        loss_value=learner.loss_value if learner and learner.step else None,
        learning_rate=learner.learning_rate if learner else None,
        selfplay_stalled=learner.stall_selfplay if learner else False,
        learner_waiting=learner.waiting if learner else False,
        weight_version=version,
        policy_lag=policy_lag(workers, name, version),
        strength=strength(facts.grades, ratings),
        ledger=ledger_status(facts.counts),
        jobs_queued=len(facts.jobs) - leased,
        jobs_leased=leased,
        workers=tuple(worker_status(beat, now_ms) for beat in workers),
        conditions=(*conditions, *failed_matches(facts.matches)),
    )


def fleet_rates(workers: Sequence[Heartbeat]) -> FleetRates:
    """The rates of all these workers, summed or averaged as each asks for."""
    busy = [beat.rates[metrics.NETWORK_BUSY] for beat in workers if beat.role == "inference" and metrics.NETWORK_BUSY in beat.rates]
    return FleetRates(
        games_per_s=_total(workers, metrics.GAMES_PER_S, ("selfplay",)),
        simulations_per_s=_total(workers, metrics.SIMULATIONS_PER_S, ("selfplay", "eval")),
        evaluations_per_s=_evaluations_per_s(workers),
        mean_batch=_mean_batch(workers),
        network_busy=sum(busy) / len(busy) if busy else 0.0,
    )


def failed_matches(matches: Sequence[MatchResult]) -> list[str]:
    """The opponents whose newest match an engine ended (matches come newest first), and why."""
    newest: dict[str, MatchResult] = {}
    for match in matches:
        newest.setdefault(match.spec.second, match)
    return [f"the match against {opponent} failed: {match.error}" for opponent, match in newest.items() if match.error]


def ledger_status(counts: LedgerCounts) -> LedgerStatus:
    """The counts, with the verdict."""
    return LedgerStatus(
        counts.opened,
        counts.finished,
        counts.open,
        counts.abandoned,
        counts.inserted,
        counts.in_transit,
        counts.duplicates_dropped,
        counts.balanced,
    )


def worker_status(beat: Heartbeat, now_ms: int) -> WorkerStatus:
    """A heartbeat as operators read it."""
    return WorkerStatus(
        worker=beat.worker,
        role=beat.role,
        host=beat.host,
        pid=beat.pid,
        version=beat.version,
        run=beat.run,
        queues=beat.queues,
        tags=beat.tags,
        slots=beat.slots,
        age_s=max(0, now_ms - beat.sent_ms) / 1000,
        up_s=max(0, beat.sent_ms - beat.started_ms) / 1000,
        rates=dict(beat.rates),
        weight_versions=dict(beat.weight_versions),
    )


def strength(grades: Sequence[GradeResult], ratings: Sequence[Rated]) -> Strength:
    """The newest grade (grades come newest first) and the rating of the highest weight version."""
    grade = next((grade for grade in grades if grade.positions), None)
    rated = max(
        ((version, rating) for rating in ratings if (version := _version(rating.player)) is not None),
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


def _version(player: str) -> int | None:
    kind, _, number = player.partition(":")
    return int(number) if kind == "weights" and number.isdigit() else None


def _total(workers: Iterable[Heartbeat], rate: str, roles: tuple[str, ...]) -> float:
    return sum(beat.rates.get(rate, 0.0) for beat in workers if beat.role in roles)


def _evaluations_per_s(workers: Sequence[Heartbeat]) -> float:
    """What inference workers do; where there is none (a local evaluator), what the searching workers do."""
    return _total(workers, metrics.EVALUATIONS_PER_S, ("inference",)) or _total(workers, metrics.EVALUATIONS_PER_S, ("selfplay", "eval"))


def _mean_batch(workers: Sequence[Heartbeat]) -> float:
    """Mean over the inference workers, each weighted by its batches per second."""
    pairs = [(beat.rates.get(metrics.EVALUATIONS_PER_S, 0.0), beat.rates.get(metrics.MEAN_BATCH, 0.0)) for beat in workers]
    busy = [(rate, batch) for rate, batch in pairs if rate > 0 and batch > 0]
    batches_per_s = sum(rate / batch for rate, batch in busy)
    return sum(rate for rate, _ in busy) / batches_per_s if batches_per_s else 0.0


def policy_lag(workers: Sequence[Heartbeat], run: str, version: int) -> float:
    """Versions between the newest weights and those that self-play searches with, mean over its workers."""
    said = [beat.rates[metrics.POLICY_LAG] for beat in workers if beat.role == "selfplay" and metrics.POLICY_LAG in beat.rates]
    lags = said or [
        max(0, version - beat.weight_versions[run]) for beat in workers if beat.role == "selfplay" and run in beat.weight_versions
    ]
    return sum(lags) / len(lags) if lags else 0.0
