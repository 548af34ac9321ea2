"""One run at a glance: every figure of the live table, as a pure function of what was read. Works without the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, Literal

import msgspec

from azq.config import NetworkConfig
from azq.goals import Done, Goals
from azq.ledger.records import known_section, max_waiting
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState, RunView
from azq.ratings.matches import WholeMatch, part_of
from azq.status.conditions import Died, crash_loops, mended_texts, no_games
from azq.status.history import STILL, Pace, counters, latest
from azq.status.spending import RunCost, cost_of, money_of, warning
from azq.status.stages import UNSEEN, Evaluated, RunFirsts, RunStage, stages_of
from azq.status.state import SILENT, stalled
from azq.status.strength import (
    UNRATED,
    Measure,
    Standing,
    Strength,
    game_of,
    headline,
    measures,
    situation_of,
    strength,
    trends,
)
from azq.status.workers import WorkerStatus, Workforce, by_reason, team_of, worker_status
from azq.wire.kinds import Kind
from azq.wire.machines import Spending
from azq.wire.messages import LATEST, Heartbeat, HistoryPoint, LearnerStatus, MatchResult, MatchSpec, RunRecord, WeightEvent
from azq.wire.parts import whole_of

_DEFAULT = NetworkConfig()


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """A network's kind and size; the present one is that of the newest weights, None before there are any that say theirs."""

    kind: str
    configured_blocks: int  # network.blocks of the run's settings
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
    learner: LearnerStatus | None = None  # None: no live learner
    learned: LearnerStatus | None = None  # what one said last, alive or not
    point: HistoryPoint | None = None  # the newest
    weights: WeightEvent | None = None
    standing: Standing = UNRATED
    workers: tuple[Heartbeat, ...] = ()
    serving: int = LATEST  # the version that does; LATEST: the newest
    spent: Spending | None = None  # None: not counted
    firsts: RunFirsts = UNSEEN
    deaths: Sequence[Died] = ()  # of all processes there are, oldest first
    abandoned: str = ""  # of a run that finished no game, why one was abandoned
    failed: str = ""  # and which job of self-play failed last, and why
    mended: Mapping[str, int] = field(default_factory=dict)  # what was wrong in the ledger's keys -> when it was mended last


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
    each: tuple[RankRow, ...] = ()  # by number, the learner first; empty: it trains alone


@dataclass(frozen=True, slots=True)
class RankRow:
    """One of the processes that train together; times are of one step."""

    rank: int
    state: Literal["trains", "waits", "away", "left_out"]  # left_out: for its errors, until ten minutes after the last
    host: str
    device: str
    rows: int
    samples_per_s: float
    batch_s: float
    sync_s: float
    memory_bytes: int
    micro_batch: int
    errors: int
    reason: str
    seen_ms: int
    state_bytes: int  # of weights, gradients, optimiser and average, as far as it holds them


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
    games_per_s: float  # this and all rates are the run's own, and 0 while it does not run
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
    matches: tuple[str, ...] = ()  # in parts and under way: players, how far, and what a sequential test tells so far
    serving_version: int = 0  # that self-play follows, and `policy_lag` counts from
    cost: RunCost | None = None  # None: not counted
    eta_s: float | None = None  # until its end at the present pace; None: it has none, or does not come nearer
    eta_by: str = ""  # the goal that it reaches first
    games_alone: int = 0  # learned from and on the learner's disk alone, though the run's store is to keep games
    stages: tuple[RunStage, ...] = ()  # that have begun: spin-up, fill, main, final
    crash_loops: int = 0  # processes that die again and again; `conditions` name them
    ledger_mended: int = 0  # faults in the ledger's keys of the last hour; `conditions` name them
    steps_per_s: float = 0.0
    game: str = ""
    no_games: str = ""  # why there are none to learn from; `conditions` say so, too
    headline: str = ""  # how it does, in one sentence
    measures: tuple[Measure, ...] = ()  # how well it plays: what its game is judged by first, and those others that are known


def summarise(facts: RunFacts, now_ms: int, conditions: Sequence[str] = (), team: Workforce | None = None) -> RunStatus:
    """The status of one run; `team` are its workers, where not those of `facts`."""
    view, counts, name = facts.view, facts.counts, facts.view.record.run
    team = team or team_of([beat for beat in facts.workers if beat.run in ("", name)], partial(worker_status, now_ms=now_ms))
    leased = sum(job.state is JobState.LEASED for job in facts.jobs)
    not_served = {beat.host: beat.unserved[name] for beat in team.beats if name in beat.unserved}
    notes = {beat.worker: beat.note for beat in team.beats if beat.note}
    version = max(facts.weights.version if facts.weights else 0, last_learner(facts).weight_version)
    serving = facts.serving or version
    running, game = view.state is RunState.RUNNING, game_of(view.record)
    rates = rates_of(facts, team) if running else STILL
    cost, (eta_by, eta_s) = run_cost(facts, rates), run_end(facts, rates)
    plays = strength(facts.standing, game)
    trend = trends(game, facts.standing)
    loops, games_missing = crash_loops(facts.deaths, now_ms, name), missing_games(facts, rates)
    trouble = " and ".join(filter(None, (games_missing, *map(str, loops))))
    situation = situation_of(view, facts.standing, trend, counts.finished, last_learner(facts).step, eta_s=eta_s, trouble=trouble)
    return RunStatus(
        run=name,
        state=view.state,
        reason=view.reason,
        draining=view.state is not RunState.RUNNING and leased > 0,
        active_s=view.active_ms / 1000,
        until=dict(view.record.until),
        **asdict(rates),
        **_learner_figures(facts),
        game=game,
        progress=Goals(view.record.until).progress(done_of(facts)),
        open_games=counts.open,
        selfplay_stalled=bool(stalled(facts.learner, counts, max_waiting(view.record))),
        weight_version=version,
        policy_lag=team.lag(name, serving) if running else 0.0,
        serving_version=serving,
        strength=plays,
        measures=measures(game, trend),
        headline=headline(situation),
        ledger=ledger_status(counts),
        jobs_queued=len(facts.jobs) - leased,
        jobs_leased=leased,
        workers=team.workers,
        network=network_status(view.record, facts.weights),
        conditions=tuple(
            dict.fromkeys(
                (
                    *((games_missing,) if games_missing else ()),
                    *conditions,
                    *map(str, loops),  # the daemon's conditions say so, too
                    *mended_texts(facts.mended, now_ms),
                    *_nearly_spent(cost, view),  # the daemon's conditions say so, too
                    *(by_reason("not served by ", not_served) if running else ()),
                    *(by_reason("", notes) if running else ()),
                    *failed_matches(facts.standing.matches),
                    *map(str, facts.standing.strangers),
                )
            )
        ),
        cost=cost,
        eta_s=eta_s,
        eta_by=eta_by,
        matches=under_way(facts.standing.matches, facts.jobs),
        not_served=not_served,
        crash_loops=len(loops),
        no_games=games_missing,
        ledger_mended=len(facts.mended),
        stages=stages_of(view, facts.firsts, evaluated(facts.standing, facts.jobs), now_ms),
    )


def missing_games(facts: RunFacts, rates: Pace) -> str:
    """Why a run has no games to learn from; empty where it has."""
    learner, active_s = facts.learner or facts.learned, facts.view.active_ms / 1000
    samples = learner.samples_inserted if learner else None
    return no_games(facts.counts, active_s, samples, facts.failed, facts.abandoned, evaluating=rates.evaluations_per_s > 0)


def last_learner(facts: RunFacts) -> LearnerStatus:
    """What a learner of the run said last; of a run of an older azq what its newest weights tell."""
    if (learner := facts.learner or facts.learned) is not None or facts.weights is None:
        return learner or SILENT
    figures = {"step": facts.weights.step, "samples_inserted": facts.weights.samples, "weight_version": facts.weights.version}
    return msgspec.structs.replace(SILENT, **figures)


def rates_of(facts: RunFacts, team: Workforce) -> Pace:
    """How fast a run goes, by its own counters."""
    now = counters(facts.view.active_ms, facts.counts, last_learner(facts))
    return latest(facts.point, now, team.networks.get(facts.view.record.run))


def run_cost(facts: RunFacts, rates: Pace) -> RunCost | None:
    """What a run costs so far and where that leads at its present pace."""
    if facts.spent is None:
        return None
    return cost_of(facts.spent, facts.view.record.until, done_of(facts), _pace(facts, rates), running=facts.view.state is RunState.RUNNING)


def run_end(facts: RunFacts, rates: Pace) -> tuple[str, float | None]:
    """The goal that a run reaches first and in how many seconds at its present pace; empty and None where it does not."""
    if facts.view.state is not RunState.RUNNING:
        return "", None
    return Goals(facts.view.record.until).first_end(done_of(facts), _pace(facts, rates))


def done_of(facts: RunFacts) -> Done:
    """What a run has behind it."""
    money = money_of(facts.spent) if facts.spent else 0.0
    return Done.of(facts.view.active_ms, facts.counts.finished, last_learner(facts).step, money)


def _pace(facts: RunFacts, rates: Pace) -> dict[str, float]:
    per_hour = facts.spent.per_hour if facts.spent else 0.0
    return {"games": rates.games_per_s, "steps": rates.steps_per_s, "money": per_hour / 3600}


def _nearly_spent(cost: RunCost | None, view: RunView) -> list[str]:
    limit = view.record.until.get("money")
    if cost is None or not limit or view.state is not RunState.RUNNING:
        return []
    return [text for text in (warning(f"the run's {limit:g} {cost.currency}", cost.money / limit),) if text]


def _learner_figures(facts: RunFacts) -> dict[str, Any]:
    """The newest figures of a run's learner, by the names in `RunStatus`."""
    live, learner = facts.learner, last_learner(facts)
    trained = learner.step and (live or facts.learned)  # weights alone tell no losses
    return {
        "samples": learner.samples_inserted,
        "window": learner.window,
        "samples_per_insert": learner.samples_consumed / learner.samples_inserted if learner.samples_inserted else 0.0,
        "learner_live": live is not None,
        "learner_step": learner.step,
        "loss_policy": learner.loss_policy if trained else None,
        "loss_value": learner.loss_value if trained else None,
        "learning_rate": learner.learning_rate or None,
        "learner_waiting": live is not None and live.waiting,
        "games_alone": learner.games_alone,
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
        each=tuple(RankRow(**msgspec.structs.asdict(rank)) for rank in learner.each_rank),
    )


def evaluated(run: Standing, jobs: Sequence[JobView] = ()) -> Evaluated:
    """How far evaluating a run is; `jobs` are those queued and leased."""
    newest_ms = max((result.finished_ms for results in (run.matches, run.grades) for result in results), default=0)
    return Evaluated(newest_ms, any(view.job.kind == Kind.EVAL for view in jobs))


def under_way(matches: Sequence[WholeMatch], jobs: Sequence[JobView]) -> tuple[str, ...]:
    """The matches in parts of which some are queued or being played, and how far they are."""
    wanted: dict[MatchSpec, None] = {}
    for view in jobs:
        if (spec := part_of(view.job)) is not None:
            wanted.setdefault(whole_of(spec))
    played = {match.spec: match for match in matches}
    progress = {spec: played[spec].progress if spec in played else f"0 of {spec.games}" for spec in wanted}
    return tuple(f"{spec.first} - {spec.second}: {progress}" for spec, progress in progress.items())


def failed_matches(matches: Sequence[MatchResult]) -> list[str]:
    """The opponents whose newest match an engine ended (matches come newest first), and why."""
    newest: dict[str, MatchResult] = {}
    for match in matches:
        newest.setdefault(match.spec.second, match)
    return [f"the match against {opponent} failed: {match.error}" for opponent, match in newest.items() if match.error]


def ledger_status(counts: LedgerCounts) -> LedgerStatus:
    """The counts, with the verdict."""
    return LedgerStatus(**{row.name: getattr(counts, row.name) for row in fields(LedgerStatus)})
