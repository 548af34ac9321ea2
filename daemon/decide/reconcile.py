"""The daemon's one decision: the difference between what is wanted and what is there, as a list of actions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from azq.config import DaemonConfig, RunSections
from azq.goals import Done, Goals
from azq.ledger.types import JobState, JobView, RunState
from azq.status.queues import condense, live_tags, slots_of
from azq.status.state import SILENT, Desired, DesiredRun, Observed, ObservedRun, Offer, stalled
from azq.wire.kinds import MAKES_GAMES, Kind, queue_name
from daemon.decide.actions import (
    Action,
    CancelQueued,
    EnqueueEval,
    EnqueueSelfplay,
    ExpireLeases,
    FailRun,
    FinishRun,
    PublishJob,
    ReportUnroutable,
    RequeueLost,
)
from daemon.decide.evaluation import next_round

SETTLE_MS = 4_000  # a finished run's learner still publishes what it learned last; the final round is for those weights
FAILURES_IN_A_ROW = 5  # self-play jobs that end in an error, none in between that does not


def reconcile(
    desired: Desired, observed: Observed, now_ms: int, config: DaemonConfig, has_positions: Callable[[str], bool]
) -> list[Action]:
    """Everything to do now, in order; nothing when all is as it should be.

    `has_positions(game)` tells whether the arena has graded positions of a game.
    """
    scene = _Scene(condense(observed.workers), observed.full_ms, _sharing(desired, observed), now_ms, config, has_positions)
    return [
        action for run in desired.runs if (seen := observed.runs.get(run.name)) is not None for action in _reconcile_run(run, seen, scene)
    ]


@dataclass(frozen=True, slots=True)
class _Scene:
    """What is the same for all runs of one look."""

    offers: Sequence[Offer]
    full_ms: Mapping[str, int]
    sharing: Mapping[str, int]  # hardware tag -> runs that want its self-play slots
    now_ms: int
    config: DaemonConfig
    has_positions: Callable[[str], bool]


def _sharing(desired: Desired, observed: Observed) -> Counter[str]:
    """How many runs want self-play slots of each hardware tag just now."""
    return Counter(
        run.sections.run.tag
        for run in desired.runs
        if run.state is RunState.RUNNING
        and run.sections
        and (seen := observed.runs.get(run.name))
        and not stalled(seen.learner, seen.counts, run.sections.selfplay.max_waiting_games)
    )


def _reconcile_run(run: DesiredRun, seen: ObservedRun, scene: _Scene) -> list[Action]:
    actions: list[Action] = list(_expire(run, seen, scene.now_ms))
    if run.state is RunState.RUNNING and (ending := _ending(run, seen)) is not None:
        return [*actions, ending]
    if run.state in (RunState.FINISHED, RunState.FAILED):
        actions += _drop(run.state, seen)
    if run.state not in (RunState.RUNNING, RunState.FINISHED) or run.sections is None:
        return actions
    actions += _deliver(run.state, seen, scene)
    if run.state is RunState.RUNNING:
        actions += _top_up(run.name, run.sections, seen, scene)
    finished = run.state is RunState.FINISHED
    if finished and scene.now_ms - run.changed_ms < SETTLE_MS:
        return actions
    evaluation = next_round(run.name, run.sections, seen, scene.offers, scene.now_ms, scene.has_positions, finished=finished)
    if evaluation is not None:
        actions.append(_route(evaluation, scene.offers))
    return actions


def _ending(run: DesiredRun, seen: ObservedRun) -> Action | None:
    if run.sections is None:
        return FailRun(run.name, run.unreadable)
    done = Done.of(seen.active_ms, seen.counts.finished, (seen.learner or SILENT).step)
    if reason := Goals(run.until).reached(done):
        return FinishRun(run.name, reason)
    recent = [view for view in seen.ended if view.job.kind in MAKES_GAMES and view.ended_ms > run.changed_ms][:FAILURES_IN_A_ROW]
    if len(recent) == FAILURES_IN_A_ROW and all(view.state is JobState.FAILED for view in recent):
        return FailRun(run.name, f"{FAILURES_IN_A_ROW} self-play jobs in a row failed; the last one: {recent[0].error}")
    return None


def _expire(run: DesiredRun, seen: ObservedRun, now_ms: int) -> list[Action]:
    over = any(view.state is JobState.LEASED and view.lease_until_ms <= now_ms for view in seen.jobs)
    return [ExpireLeases(run.name)] if over else []


def _drop(state: RunState, seen: ObservedRun) -> list[Action]:
    """Queued jobs of an ended run are over; evaluations of a finished one still count."""
    queued = [view for view in seen.jobs if view.state is JobState.QUEUED]
    return [CancelQueued(view.job.job_id) for view in queued if not _survives(view, state)]


def _survives(view: JobView, state: RunState) -> bool:
    return state is RunState.RUNNING or (state is RunState.FINISHED and view.job.kind not in MAKES_GAMES)


def _route(evaluation: EnqueueEval, offers: Sequence[Offer]) -> Action:
    queue = queue_name(Kind.EVAL, evaluation.tag)
    return evaluation if slots_of(offers, queue) else ReportUnroutable(evaluation.run, queue, live_tags(offers, Kind.EVAL))


def _deliver(state: RunState, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """First publications, and new attempts for messages that nobody claimed although a worker was free all the while."""
    actions: list[Action] = []
    for view in seen.jobs:
        queue = view.job.queue
        if view.state is not JobState.QUEUED or not _survives(view, state):
            continue
        if not slots_of(scene.offers, queue):
            actions.append(ReportUnroutable(view.job.run, queue, live_tags(scene.offers, view.job.kind)))
        elif view.published_ms == 0:
            actions.append(PublishJob(view))
        elif _is_lost(view, scene.full_ms.get(queue, scene.now_ms), scene.now_ms, scene.config):
            actions.append(RequeueLost(view.job.job_id, view.attempt))
    return list(dict.fromkeys(actions))


def _is_lost(view: JobView, full_ms: int, now_ms: int, config: DaemonConfig) -> bool:
    return now_ms - max(view.published_ms, full_ms) >= config.unclaimed_s * 1000


def _top_up(name: str, sections: RunSections, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """New jobs up to the run's share of the slots; shares are rounded up, so that no slot is without a job."""
    tag = sections.run.tag
    slots = slots_of(scene.offers, queue_name(Kind.SELFPLAY, tag))
    if not slots:
        return [ReportUnroutable(name, queue_name(Kind.SELFPLAY, tag), live_tags(scene.offers, Kind.SELFPLAY))]
    if stalled(seen.learner, seen.counts, sections.selfplay.max_waiting_games):
        return []
    active = sum(view.job.kind == Kind.SELFPLAY and view.job.tag == tag for view in seen.jobs)
    job = EnqueueSelfplay(name, tag, sections.selfplay.games_in_flight, sections.selfplay.slice_s)
    share = -(-slots // scene.sharing[tag])
    return [job] * max(0, share + scene.config.jobs_ahead - active)
