"""What the daemon decides on, in few words: runs, jobs, heartbeats, and the decision itself."""

from __future__ import annotations

import dataclasses

from factories import heartbeat

from azq.config import ArenaConfig, DaemonConfig, RunConfig, RunSections, SelfPlayConfig
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat, Job
from daemon.decide.actions import Action
from daemon.decide.reconcile import reconcile

NOW = 10_000_000
WAITING = 500  # games for the learner at which self-play stalls
CONFIG = DaemonConfig(jobs_ahead=1)
SECTIONS = RunSections(
    run=RunConfig(game="connect_four", tag="cpu"),
    selfplay=SelfPlayConfig(games_in_flight=32, slice_s=60.0, max_waiting_games=WAITING),
    arena=ArenaConfig(every_s=120.0, opponents=("previous", "uct:100"), games=8, grade_positions=50),
)
EMPTY = LedgerCounts(0, 0, 0, 0, 0, 0, 0)


def beat(worker: str, *queues: str, slots: int = 1) -> Heartbeat:
    return heartbeat(worker=worker, queues=queues, slots=slots)


def view(
    number: int, state: JobState = JobState.LEASED, *, kind: Kind = Kind.SELFPLAY, tag: str = "cpu", run: str = "r", **changes: object
) -> JobView:
    base = JobView(
        job=Job(job_id=f"{run}:{number}", run=run, kind=kind, tag=tag),
        state=state,
        attempt=1,
        owner="w" if state is JobState.LEASED else "",
        lease_until_ms=NOW + 10_000 if state is JobState.LEASED else 0,
        published_ms=NOW - 1_000,
        created_ms=NOW - 1_000,
        claimed_ms=0,
        ended_ms=0,
        error="",
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def decide(
    seen: ObservedRun,
    workers: tuple[Heartbeat, ...] = (),
    *,
    state: RunState = RunState.RUNNING,
    until: dict[str, float] | None = None,
    sections: RunSections | None = SECTIONS,
    full_ms: dict[str, int] | None = None,
    positions: bool = True,
    config: DaemonConfig = CONFIG,
    changed_ms: int = NOW - 100_000,
    changed_job: int = 0,
) -> list[Action]:
    unreadable = "" if sections else "selfplay.oops: unknown key"
    run = DesiredRun("r", state, sections, until or {}, changed_ms, changed_job, unreadable)
    return reconcile(Desired((run,)), observed(workers, {"r": seen}, full_ms or {}), NOW, config, lambda _game: positions)


def observed(workers: tuple[Heartbeat, ...], runs: dict[str, ObservedRun], full_ms: dict[str, int]) -> Observed:
    """What a daemon saw that looked on since before the first message, while nobody set a clock."""
    sent_ms = {(view.job.job_id, view.attempt): view.published_ms for seen in runs.values() for view in seen.jobs}
    return Observed(workers, runs, full_ms, sent_ms, NOW)
