"""The daemon's decision: its properties over random fleets."""

from __future__ import annotations

import dataclasses

from factories import learner_status
from hypothesis import given, settings
from hypothesis import strategies as st
from reconcile_worlds import CONFIG, EMPTY, NOW, SECTIONS, WAITING, beat, observed, view

from azq.config import RunConfig
from azq.ledger.types import JobState, JobView, RunState
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import EvalRound
from daemon.decide.actions import (
    Action,
    CancelQueued,
    Condition,
    EndRun,
    EnqueueEval,
    EnqueueJob,
    ExpireLeases,
    PublishJob,
    RequeueLost,
)
from daemon.decide.reconcile import reconcile

QUEUES = ("selfplay.cpu", "selfplay.cuda", "eval.cpu", "eval.cuda")
STATES = (JobState.QUEUED, JobState.LEASED)


@st.composite
def job_views(draw: st.DrawFn, number: int) -> JobView:
    state = draw(st.sampled_from(STATES))
    return view(
        number,
        state,
        kind=draw(st.sampled_from(Kind)),
        tag=draw(st.sampled_from(("cpu", "cuda"))),
        attempt=draw(st.integers(1, 3)),
        lease_until_ms=NOW + draw(st.integers(-50_000, 50_000)) if state is JobState.LEASED else 0,
        published_ms=draw(st.sampled_from((0, NOW - 60_000, NOW - 1_000))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[DesiredRun, Observed]:
    workers = tuple(
        beat(f"w{i}", *draw(st.sets(st.sampled_from(QUEUES), min_size=1)), slots=draw(st.integers(1, 4)))
        for i in range(draw(st.integers(0, 4)))
    )
    jobs = tuple(draw(job_views(number)) for number in range(draw(st.integers(0, 8))))
    state = draw(st.sampled_from(list(RunState)))
    seen = ObservedRun(
        counts=dataclasses.replace(EMPTY, finished=draw(st.integers(0, 20)), in_transit=draw(st.sampled_from((0, WAITING)))),
        active_ms=draw(st.integers(0, 600_000)),
        jobs=jobs,
        learner=draw(st.sampled_from((None, learner_status(), learner_status(stall_selfplay=True), learner_status(step=99)))),
        weight_version=draw(st.integers(0, 5)),
        round=EvalRound(draw(st.integers(0, 5)), draw(st.sampled_from((0, NOW - 500_000, NOW - 1_000)))),
    )
    until = draw(st.sampled_from(({}, {"games": 10.0}, {"steps": 50.0}, {"minutes": 5.0})))
    sections = SECTIONS.model_copy(update={"run": RunConfig(tag=draw(st.sampled_from(("cpu", "cuda", "jarvis"))))})
    full_ms = {queue: draw(st.sampled_from((NOW, NOW - 60_000))) for queue in QUEUES}
    return DesiredRun("r", state, sections, until, changed_ms=NOW - 100_000), observed(workers, {"r": seen}, full_ms)


def effects(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Condition)]


def apply(run: DesiredRun, before: Observed, actions: list[Action]) -> tuple[DesiredRun, Observed]:
    """What ledger and queue make of the actions, in plain values."""
    seen = before.runs["r"]
    jobs = {job.job.job_id: job for job in seen.jobs}
    for action in actions:
        match action:
            case PublishJob(job):
                jobs[job.job.job_id] = dataclasses.replace(job, published_ms=NOW)
            case EnqueueJob(new):
                number = len(jobs) + 1000
                jobs[f"r:{number}"] = view(number, JobState.QUEUED, kind=new.kind, tag=new.tag, published_ms=NOW)
            case EnqueueEval():
                for _ in action.specs:
                    number = len(jobs) + 1000
                    jobs[f"r:{number}"] = view(number, JobState.QUEUED, kind=Kind.EVAL, tag=action.tag, published_ms=NOW)
                seen = dataclasses.replace(seen, round=action.noted)
            case ExpireLeases():
                for key, job in jobs.items():
                    if job.state is JobState.LEASED and job.lease_until_ms <= NOW:
                        jobs[key] = dataclasses.replace(job, state=JobState.QUEUED, attempt=job.attempt + 1, owner="", published_ms=0)
            case RequeueLost(job_id, attempt):
                jobs[job_id] = dataclasses.replace(jobs[job_id], attempt=attempt + 1, published_ms=NOW)
            case CancelQueued(job_id):
                del jobs[job_id]
            case EndRun(_, state):
                run = dataclasses.replace(run, state=state)
    runs = {"r": dataclasses.replace(seen, jobs=tuple(jobs.values()))}
    return run, observed(before.workers, runs, dict(before.full_ms))


def step(run: DesiredRun, seen: Observed) -> list[Action]:
    return reconcile(Desired((run,)), seen, NOW, CONFIG, lambda _game: True)


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_it_settles_and_then_does_nothing(world: tuple[DesiredRun, Observed]) -> None:
    run, seen = world
    for _ in range(4):  # a goal, then dropped jobs, then the last evaluation, then nothing
        actions = effects(step(run, seen))
        run, seen = apply(run, seen, actions)
    assert effects(step(run, seen)) == []


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_it_never_enqueues_beyond_slots_and_jobs_ahead(world: tuple[DesiredRun, Observed]) -> None:
    run, seen = world
    assert run.sections is not None
    tag = run.sections.run.tag
    slots = sum(worker.slots for worker in seen.workers if queue_name("selfplay", tag) in worker.queues)
    before = sum(job.job.kind == "selfplay" and job.job.tag == tag for job in seen.runs["r"].jobs)
    new = [action for action in step(run, seen) if isinstance(action, EnqueueJob)]
    if new:
        assert run.state is RunState.RUNNING
        assert slots > 0
        assert before + len(new) == slots + CONFIG.jobs_ahead


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_every_expired_lease_is_handled_and_no_live_one(world: tuple[DesiredRun, Observed]) -> None:
    run, seen = world
    expired = any(job.state is JobState.LEASED and job.lease_until_ms <= NOW for job in seen.runs["r"].jobs)
    assert (ExpireLeases("r") in step(run, seen)) == expired


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_no_job_is_touched_twice_in_one_look_and_none_that_is_leased(world: tuple[DesiredRun, Observed]) -> None:
    run, seen = world
    touched = [
        action.view.job.job_id if isinstance(action, PublishJob) else action.job_id
        for action in step(run, seen)
        if isinstance(action, PublishJob | RequeueLost | CancelQueued)
    ]
    assert len(touched) == len(set(touched))
    queued = {job.job.job_id for job in seen.runs["r"].jobs if job.state is JobState.QUEUED}
    assert set(touched) <= queued


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_at_most_one_evaluation_round_is_out(world: tuple[DesiredRun, Observed]) -> None:
    run, seen = world
    rounds = [action for action in step(run, seen) if isinstance(action, EnqueueEval)]
    assert len(rounds) <= 1
    if rounds:
        assert not any(job.job.kind == "eval" for job in seen.runs["r"].jobs)
