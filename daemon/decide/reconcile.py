"""The daemon's one decision: the difference between what is wanted and what is there, as a list of actions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from azq.config import DaemonConfig, RunConfig, RunSections
from azq.goals import Done, Goals
from azq.ledger.types import JobState, JobView, RunState, split_job_id
from azq.status.state import SILENT, Desired, DesiredRun, Observed, ObservedRun, Offer, stalled
from azq.status.workers import condense, eval_tag, slots_of, staying
from azq.wire.kinds import BROWSER, MAKES_GAMES, Kind, queue_name
from azq.wire.messages import Job
from daemon.decide import actions as do
from daemon.decide.actions import Action
from daemon.decide.promotion import next_promotions
from daemon.decide.rounds import TABS_MATCHES, Arena, needless, next_evaluation

# How long in all a slice may wait for its limiter, or for a run's first weights, before its slot is free: for another run or an evaluation.
STALL_ALONE_S, STALL_SHARED_S = 10.0, 1.0
UNCLAIMED_MS = 15_000  # after which a published job that no free worker claimed is published again
FAILURES_IN_A_ROW = 5  # self-play jobs that end in an error, none in between that does not


def reconcile(
    desired: Desired, observed: Observed, now_ms: int, config: DaemonConfig, has_positions: Callable[[RunConfig], bool]
) -> list[Action]:
    """Everything to do now, in order; nothing when all is as it should be.

    `has_positions(run)` tells whether the arena has graded positions of a run's game.
    """
    offers, sharing = condense(staying(observed.workers)), _sharing(desired, observed)
    scene = _Scene(offers, observed, _taken(observed), sharing, _running(desired), now_ms, config, has_positions)
    return [
        action for run in desired.runs if (seen := observed.runs.get(run.name)) is not None for action in _reconcile_run(run, seen, scene)
    ]


@dataclass(frozen=True, slots=True)
class _Scene:
    """What is the same for all runs of one look."""

    offers: Sequence[Offer]
    seen: Observed
    taken_ms: Mapping[tuple[str, int], int]  # queue and priority -> when the newest message was sent that a worker has taken
    sharing: Mapping[str, int]  # hardware tag -> runs that want its self-play slots
    running: Mapping[str, int]  # and those that would but for their limiters
    now_ms: int
    config: DaemonConfig
    has_positions: Callable[[RunConfig], bool]


def _taken(observed: Observed) -> dict[tuple[str, int], int]:
    """Up to when messages have left each queue: those of a priority are taken in order."""
    taken: dict[tuple[str, int], int] = {}
    for seen in observed.runs.values():
        for view in seen.jobs:
            if view.state is JobState.LEASED:
                place = (view.job.queue, view.job.priority)
                taken[place] = max(taken.get(place, 0), _sent_ms(view, observed))
    return taken


def _sent_ms(view: JobView, observed: Observed) -> int:
    return observed.sent_ms.get((view.job.job_id, view.attempt), observed.clock_ms)


def _sharing(desired: Desired, observed: Observed) -> Counter[str]:
    """How many runs want self-play slots of each hardware tag just now."""
    return Counter(
        tag
        for run in desired.runs
        if run.state is RunState.RUNNING
        and run.sections
        and (seen := observed.runs.get(run.name))
        and not stalled(seen.learner, seen.counts, run.sections.selfplay.max_waiting_games)
        for tag in _slices(run.sections)
    )


def _running(desired: Desired) -> Counter[str]:
    """How many runs have self-play slots of each hardware tag when they want them."""
    return Counter(tag for run in desired.runs if run.state is RunState.RUNNING and run.sections for tag in _slices(run.sections))


def _slices(sections: RunSections) -> dict[str, Job]:
    """What a self-play job of the run is on each hardware tag that it wants; tabs ask for games as they can play them."""
    settings, tag = sections.selfplay, sections.run.tag
    volunteers = sections.volunteers
    jobs = {BROWSER: Job("", "", Kind.SELFPLAY, BROWSER, slice_s=volunteers.slice_s)} if Kind.SELFPLAY in volunteers.kinds else {}
    return {tag: Job("", "", Kind.SELFPLAY, tag, games=settings.games_in_flight, slice_s=settings.slice_s)} | jobs


def _reconcile_run(run: DesiredRun, seen: ObservedRun, scene: _Scene) -> list[Action]:
    actions: list[Action] = list(_expire(run, seen, scene.now_ms))
    if run.state is RunState.RUNNING and (ending := _ending(run, seen)) is not None:
        return [*actions, ending]
    if run.state in (RunState.FINISHED, RunState.FAILED):
        actions += _drop(run.state, seen)
    if run.state not in (RunState.RUNNING, RunState.FINISHED) or run.sections is None:
        return actions
    if over := needless(seen):
        return actions + over  # their messages need no care any more; the next look sees to the rest
    actions += _deliver(run, run.sections.run.tag, seen, scene)
    if run.state is RunState.RUNNING:
        actions += _top_up(run.name, run.sections, seen, scene)
    arena = Arena(run, run.sections, seen, scene.offers, scene.now_ms, scene.has_positions)
    return actions + next_promotions(arena) + next_evaluation(arena)


def _ending(run: DesiredRun, seen: ObservedRun) -> Action | None:
    if run.sections is None:
        return do.EndRun(run.name, RunState.FAILED, run.unreadable, run.changed_ms)
    done = Done.of(seen.active_ms, seen.counts.finished, (seen.learner or SILENT).step, seen.money)
    if reason := Goals(run.until).reached(done):
        return do.EndRun(run.name, RunState.FINISHED, reason, run.changed_ms)
    own = [view for view in seen.ended if view.job.kind in MAKES_GAMES and view.job.tag != BROWSER]  # what tabs do fails no run
    recent = [view for view in own if split_job_id(view.job.job_id)[1] > run.changed_job][:FAILURES_IN_A_ROW]
    if len(recent) == FAILURES_IN_A_ROW and all(view.state is JobState.FAILED for view in recent):
        reason = f"{FAILURES_IN_A_ROW} self-play jobs in a row failed; the last one: {recent[0].error}"
        return do.EndRun(run.name, RunState.FAILED, reason, run.changed_ms)
    return None


def _expire(run: DesiredRun, seen: ObservedRun, now_ms: int) -> list[Action]:
    over = any(view.state is JobState.LEASED and view.lease_until_ms <= now_ms for view in seen.jobs)
    return [do.ExpireLeases(run.name)] if over else []


def _drop(state: RunState, seen: ObservedRun) -> list[Action]:
    """Queued jobs of an ended run are over; evaluations of a finished one still count."""
    queued = [view for view in seen.jobs if view.state is JobState.QUEUED]
    return [do.CancelQueued(view.job.job_id) for view in queued if not _survives(view, state)]


def _survives(view: JobView, state: RunState) -> bool:
    return state is RunState.RUNNING or (state is RunState.FINISHED and view.job.kind not in MAKES_GAMES)


def _deliver(run: DesiredRun, own_tag: str, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """First publications, and new attempts for messages that are lost."""
    actions: list[Action] = []
    for view in seen.jobs:
        queue = view.job.queue
        if view.state is not JobState.QUEUED or not _survives(view, run.state):
            continue
        if queue == TABS_MATCHES and (left := _left_by_tabs(view, run.state, own_tag, scene.offers)):
            actions += left
        elif not slots_of(scene.offers, queue):
            actions.append(do.unroutable(view.job.run, queue, scene.offers))
        elif view.published_ms == 0:
            actions.append(do.PublishJob(view))
        elif _is_lost(view, scene):
            actions.append(do.RequeueLost(view.job.job_id, view.attempt))
    return list(dict.fromkeys(actions))


def _is_lost(view: JobView, scene: _Scene) -> bool:
    """Whether a message is lost: a worker was free all the while, or took later ones. No clock that can be set says so."""
    queue, seen, wait_ms = view.job.queue, scene.seen, UNCLAIMED_MS
    sent_ms = _sent_ms(view, seen)
    was_free = seen.clock_ms - max(sent_ms, seen.full_ms.get(queue, seen.clock_ms)) >= wait_ms
    return was_free or scene.taken_ms.get((queue, view.job.priority), 0) - sent_ms >= wait_ms


def _left_by_tabs(view: JobView, state: RunState, own_tag: str, offers: Sequence[Offer]) -> list[Action]:
    """A queued match that no tabs are there for, or did not bring to its end, goes to servers where there are any; else nothing."""
    tag = eval_tag(offers, own_tag)
    servers = slots_of(offers, queue_name(Kind.EVAL, tag))
    tabs = slots_of(offers, TABS_MATCHES) if state is RunState.RUNNING else 0
    if tabs and not (servers and view.attempt > 1):
        return []
    moved = [do.EnqueueJob(msgspec.structs.replace(view.job, job_id="", tag=tag))] if servers else []
    return [do.CancelQueued(view.job.job_id), *moved]


def _evaluate_too(offers: Sequence[Offer], queue: str) -> bool:
    """Whether slots of a queue are those of evaluations, too."""
    return any(queue in offer.queues and any(other.startswith(f"{Kind.EVAL}.") for other in offer.queues) for offer in offers)


def _top_up(name: str, sections: RunSections, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """New jobs up to the run's share of the slots of each tag; shares are rounded up, so that no slot is without a job.

    A missing gateway is no condition: volunteers are optional.
    """
    slots = {tag: slots_of(scene.offers, queue_name(Kind.SELFPLAY, tag)) for tag in _slices(sections)}
    actions: list[Action] = [
        do.unroutable(name, queue_name(Kind.SELFPLAY, tag), scene.offers) for tag, count in slots.items() if not count and tag != BROWSER
    ]
    if stalled(seen.learner, seen.counts, sections.selfplay.max_waiting_games):
        return actions
    for tag, job in _slices(sections).items():
        active = sum(view.job.kind == Kind.SELFPLAY and view.job.tag == tag for view in seen.jobs)
        wanted = -(-slots[tag] // scene.sharing[tag]) + scene.config.jobs_ahead if slots[tag] else 0
        alone = scene.running[tag] == 1 and not _evaluate_too(scene.offers, queue_name(Kind.SELFPLAY, tag))
        stall_s = 0.0 if tag == BROWSER else STALL_ALONE_S if alone else STALL_SHARED_S
        actions += [do.EnqueueJob(msgspec.structs.replace(job, run=name, stall_s=stall_s))] * max(0, wanted - active)
    return actions
