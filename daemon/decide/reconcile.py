"""The daemon's one decision: the difference between what is wanted and what is there, evaluation rounds too, as a list of actions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from azq.config import ArenaConfig, DaemonConfig, RunSections
from azq.goals import Done, Goals
from azq.ledger.types import JobState, JobView, RunState
from azq.status.queues import condense, eval_tag, live_tags, slots_of
from azq.status.state import SILENT, Desired, DesiredRun, Observed, ObservedRun, Offer, stalled
from azq.wire.kinds import BROWSER, MAKES_GAMES, Kind, queue_name
from azq.wire.messages import GradeSpec, Job, MatchSpec
from daemon.decide import actions as do
from daemon.decide.actions import Action

SETTLE_MS = 4_000  # a finished run's learner still publishes what it learned last; the final round is for those weights
SEED_LIMIT = 2**63
FIRST_POSITIONS = 50  # a few seconds of work: what a run begins with, so that its first figure of strength is there at once
TABS_MATCHES = queue_name(Kind.EVAL, BROWSER)
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
        tag
        for run in desired.runs
        if run.state is RunState.RUNNING
        and run.sections
        and (seen := observed.runs.get(run.name))
        and not stalled(seen.learner, seen.counts, run.sections.selfplay.max_waiting_games)
        for tag in _slices(run.sections)
    )


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
    actions += _deliver(run.state, run.sections.run.tag, seen, scene)
    if run.state is RunState.RUNNING:
        actions += _top_up(run.name, run.sections, seen, scene)
    if run.state is RunState.FINISHED and scene.now_ms - run.changed_ms < SETTLE_MS:
        return actions
    evaluation = _next_round(run, run.sections, seen, scene)
    if evaluation is not None:
        actions.append(_route(evaluation, scene.offers))
    return actions


def _ending(run: DesiredRun, seen: ObservedRun) -> Action | None:
    if run.sections is None:
        return do.EndRun(run.name, RunState.FAILED, run.unreadable)
    done = Done.of(seen.active_ms, seen.counts.finished, (seen.learner or SILENT).step)
    if reason := Goals(run.until).reached(done):
        return do.EndRun(run.name, RunState.FINISHED, reason)
    own = [view for view in seen.ended if view.job.kind in MAKES_GAMES and view.job.tag != BROWSER]  # what tabs do fails no run
    recent = [view for view in own if view.ended_ms > run.changed_ms][:FAILURES_IN_A_ROW]
    if len(recent) == FAILURES_IN_A_ROW and all(view.state is JobState.FAILED for view in recent):
        return do.EndRun(run.name, RunState.FAILED, f"{FAILURES_IN_A_ROW} self-play jobs in a row failed; the last one: {recent[0].error}")
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


def _route(evaluation: do.EnqueueEval, offers: Sequence[Offer]) -> Action:
    queue = queue_name(Kind.EVAL, evaluation.tag)
    if slots_of(offers, queue) or not evaluation.specs:
        return evaluation
    return do.ReportUnroutable(evaluation.run, queue, live_tags(offers, Kind.EVAL))


def _deliver(state: RunState, own_tag: str, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """First publications, and new attempts for messages that nobody claimed although a worker was free all the while."""
    actions: list[Action] = []
    for view in seen.jobs:
        queue = view.job.queue
        if view.state is not JobState.QUEUED or not _survives(view, state):
            continue
        if queue == TABS_MATCHES and (left := _left_by_tabs(view, state, own_tag, scene.offers)):
            actions += left
        elif not slots_of(scene.offers, queue):
            actions.append(do.ReportUnroutable(view.job.run, queue, live_tags(scene.offers, view.job.kind)))
        elif view.published_ms == 0:
            actions.append(do.PublishJob(view))
        elif scene.now_ms - max(view.published_ms, scene.full_ms.get(queue, scene.now_ms)) >= scene.config.unclaimed_s * 1000:
            actions.append(do.RequeueLost(view.job.job_id, view.attempt))
    return list(dict.fromkeys(actions))


def _left_by_tabs(view: JobView, state: RunState, own_tag: str, offers: Sequence[Offer]) -> list[Action]:
    """A queued match that no tabs are there for, or did not bring to its end, goes to servers where there are any; else nothing."""
    tag = eval_tag(offers, own_tag)
    servers = slots_of(offers, queue_name(Kind.EVAL, tag))
    tabs = slots_of(offers, TABS_MATCHES) if state is RunState.RUNNING else 0
    if tabs and not (servers and view.attempt > 1):
        return []
    moved = [do.EnqueueJob(msgspec.structs.replace(view.job, job_id="", tag=tag))] if servers else []
    return [do.CancelQueued(view.job.job_id), *moved]


def _top_up(name: str, sections: RunSections, seen: ObservedRun, scene: _Scene) -> list[Action]:
    """New jobs up to the run's share of the slots of each tag; shares are rounded up, so that no slot is without a job.

    A gateway may be away: nobody misses volunteers.
    """
    slots = {tag: slots_of(scene.offers, queue_name(Kind.SELFPLAY, tag)) for tag in _slices(sections)}
    actions: list[Action] = [
        do.ReportUnroutable(name, queue_name(Kind.SELFPLAY, tag), live_tags(scene.offers, Kind.SELFPLAY))
        for tag, count in slots.items()
        if not count and tag != BROWSER
    ]
    if stalled(seen.learner, seen.counts, sections.selfplay.max_waiting_games):
        return actions
    for tag, job in _slices(sections).items():
        active = sum(view.job.kind == Kind.SELFPLAY and view.job.tag == tag for view in seen.jobs)
        wanted = -(-slots[tag] // scene.sharing[tag]) + scene.config.jobs_ahead if slots[tag] else 0
        actions += [do.EnqueueJob(msgspec.structs.replace(job, run=name))] * max(0, wanted - active)
    return actions


def _next_round(run: DesiredRun, sections: RunSections, seen: ObservedRun, scene: _Scene) -> do.EnqueueEval | None:
    """The round that is due now, or None.

    Due: new weights since the last round, `arena.every_s` gone by (of active time before the first one) or `arena.every_steps` trained, no
    evaluation job outstanding.
    Where moves can be graded, the first weights are graded on a few positions as soon as a worker takes that.
    A finished run waits for no time: its last weights get their round as soon as self-play has given its games back.
    """
    arena, finished = sections.arena, run.state is RunState.FINISHED
    if not arena.evaluates or seen.weight_version <= seen.round_version:
        return None
    if any(finished or view.job.kind == Kind.EVAL for view in seen.jobs):
        return None
    tag = eval_tag(scene.offers, sections.run.tag)
    begins = not (seen.round_version or finished) and slots_of(scene.offers, queue_name(Kind.EVAL, tag))
    if begins and (first := _grade(sections, seen.weight_version, scene, most=FIRST_POSITIONS)):
        return do.EnqueueEval(run.name, tag, seen.weight_version, tuple(first), step=seen.weight_step)
    if not (finished or _waited(arena, seen, scene.now_ms)):
        return None
    matches = _matches(arena, sections.run.seed, seen)
    tabs = Kind.EVAL in sections.volunteers.kinds and not finished and slots_of(scene.offers, TABS_MATCHES)
    for_tabs = [match for match in matches if tabs and match.second.removeprefix("weights:").isdecimal()]
    specs: list[MatchSpec | GradeSpec] = [match for match in matches if match not in for_tabs]
    specs += _grade(sections, seen.weight_version, scene)
    return (
        do.EnqueueEval(run.name, tag, seen.weight_version, tuple(specs), tuple(for_tabs), seen.weight_step) if specs or for_tabs else None
    )


def _waited(arena: ArenaConfig, seen: ObservedRun, now_ms: int) -> bool:
    """Whether enough time has gone by, or enough steps have been trained, since the last round."""
    waited_ms = now_ms - seen.round_ms if seen.round_ms else seen.active_ms
    by_steps = arena.every_steps > 0 and seen.weight_step - seen.round_step >= arena.every_steps
    return by_steps or (arena.every_s > 0 and waited_ms >= arena.every_s * 1000)


def _matches(arena: ArenaConfig, seed: int, seen: ObservedRun) -> list[MatchSpec]:
    newest = f"weights:{seen.weight_version}"
    previous = f"weights:{seen.round_version}" if seen.round_version else newest
    opponents = [previous if opponent == "previous" else opponent for opponent in arena.opponents]
    return [
        MatchSpec(newest, opponent, arena.games, arena.num_simulations, arena.opening_plies, _seed(seed, seen.weight_version, index))
        for index, opponent in enumerate(opponents)
        if opponent not in (newest, "latest")
    ]


def _grade(sections: RunSections, version: int, scene: _Scene, most: int = SEED_LIMIT) -> list[GradeSpec]:
    arena = sections.arena
    if arena.grade_positions == 0 or not scene.has_positions(sections.run.game):
        return []
    # The same seed in every round: the same positions are graded, so the curve compares like with like.
    return [GradeSpec(version, min(arena.grade_positions, most), arena.num_simulations, sections.run.seed)]


def _seed(run_seed: int, version: int, index: int) -> int:
    return (run_seed * 1_000_003 + version * 1_009 + index) % SEED_LIMIT
