"""The daemon's decision: its rules one by one, then its properties over random fleets."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.config import ArenaConfig, DaemonConfig, RunConfig, RunSections, SelfPlayConfig
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState
from azq.wire.messages import GradeSpec, Heartbeat, Job, LearnerStatus, MatchSpec
from daemon.fleet import condense
from daemon.reconcile import FAILURES_IN_A_ROW, reconcile
from daemon.state import (
    Action,
    CancelQueued,
    Desired,
    DesiredRun,
    EnqueueEval,
    EnqueueSelfplay,
    ExpireLeases,
    FailRun,
    FinishRun,
    Observed,
    ObservedRun,
    Offer,
    PublishJob,
    ReportUnroutable,
    RequeueLost,
    queue_of,
)

NOW = 10_000_000
WAITING = 500  # games for the learner at which self-play stalls
CONFIG = DaemonConfig(jobs_ahead=1, unclaimed_s=15.0)
SECTIONS = RunSections(
    run=RunConfig(game="connect_four", tag="cpu"),
    selfplay=SelfPlayConfig(games_in_flight=32, slice_s=60.0, max_waiting_games=WAITING),
    arena=ArenaConfig(every_s=120.0, opponents=("previous", "uct:100"), games=8, grade_positions=50),
)
EMPTY = LedgerCounts(0, 0, 0, 0, 0, 0, 0)


def beat(worker: str, *queues: str, slots: int = 1) -> Heartbeat:
    return Heartbeat(
        role="selfplay", worker=worker, host="h", pid=1, version="0", schema=1, started_ms=0, sent_ms=0, queues=queues, slots=slots
    )


def view(
    number: int, state: JobState = JobState.LEASED, *, kind: str = "selfplay", tag: str = "cpu", run: str = "r", **changes: object
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


def learner(**changes: object) -> LearnerStatus:
    return LearnerStatus(**{**dict.fromkeys(LearnerStatus.__struct_fields__, 0), "stall_selfplay": False, **changes})  # type: ignore[arg-type]


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
) -> list[Action]:
    run = DesiredRun(
        "r", state, sections, until or {}, changed_ms=NOW - 100_000, unreadable="" if sections else "selfplay.oops: unknown key"
    )
    return reconcile(Desired((run,)), Observed(workers, {"r": seen}, full_ms or {}), NOW, config, lambda _game: positions)


def test_fills_the_slots_of_live_workers_and_keeps_one_job_ahead() -> None:
    workers = (beat("a", "selfplay.cpu", slots=2), beat("b", "selfplay.cpu", "eval.cpu"), beat("c", "selfplay.cuda", slots=9))
    actions = decide(ObservedRun(EMPTY, jobs=(view(1),)), workers)
    assert actions == [EnqueueSelfplay("r", "cpu", 32, 60.0)] * 3


@pytest.mark.parametrize(
    "seen",
    [
        ObservedRun(EMPTY, learner=learner(stall_selfplay=True)),
        ObservedRun(dataclasses.replace(EMPTY, in_transit=WAITING)),
        ObservedRun(EMPTY, jobs=(view(1), view(2, JobState.QUEUED))),
    ],
    ids=["limiter", "nobody takes samples", "enough jobs"],
)
def test_holds_back(seen: ObservedRun) -> None:
    assert decide(seen, (beat("a", "selfplay.cpu"),)) == []


def test_a_paused_run_gets_no_jobs_and_loses_none() -> None:
    assert (
        decide(ObservedRun(EMPTY, jobs=(view(1), view(2, JobState.QUEUED))), (beat("a", "selfplay.cpu", slots=5),), state=RunState.PAUSED)
        == []
    )


def test_a_tag_without_live_worker_is_reported_with_the_tags_there_are() -> None:
    actions = decide(ObservedRun(EMPTY), (beat("a", "selfplay.cuda", "eval.cpu"), beat("b", "selfplay.jarvis")))
    assert actions == [ReportUnroutable("r", "selfplay.cpu", ("cuda", "jarvis"))]
    assert "cuda, jarvis" in str(actions[0])
    assert "azq worker --queues selfplay.cpu" in str(actions[0])


def test_a_queued_job_whose_workers_went_away_is_reported_not_published() -> None:
    queued = view(1, JobState.QUEUED, tag="jarvis", published_ms=0)
    actions = decide(ObservedRun(EMPTY, jobs=(queued, view(2), view(3))), (beat("a", "selfplay.cpu"),))
    assert actions == [ReportUnroutable("r", "selfplay.jarvis", ("cpu",))]


def test_an_unpublished_job_is_published() -> None:
    queued = view(1, JobState.QUEUED, published_ms=0)
    assert decide(ObservedRun(EMPTY, jobs=(queued, view(2))), (beat("a", "selfplay.cpu"),)) == [PublishJob(queued)]


@pytest.mark.parametrize(
    ("published_ms", "full_ms", "lost"),
    [(NOW - 15_000, NOW - 15_000, True), (NOW - 14_999, 0, False), (NOW - 60_000, NOW - 14_999, False), (NOW - 60_000, NOW, False)],
    ids=["waited long beside a free worker", "waited briefly", "workers were busy until lately", "workers are busy"],
)
def test_a_message_counts_as_lost_only_beside_a_worker_that_was_free(published_ms: int, full_ms: int, lost: bool) -> None:
    queued = view(7, JobState.QUEUED, published_ms=published_ms, attempt=2)
    actions = decide(ObservedRun(EMPTY, jobs=(queued, view(2))), (beat("a", "selfplay.cpu"),), full_ms={"selfplay.cpu": full_ms})
    assert actions == ([RequeueLost("r:7", 2)] if lost else [])


@pytest.mark.parametrize("state", list(RunState))
def test_expired_leases_are_taken_back_in_every_run_state(state: RunState) -> None:
    actions = decide(ObservedRun(EMPTY, jobs=(view(1, lease_until_ms=NOW), view(2))), (beat("a", "selfplay.cpu"),), state=state)
    assert actions == [ExpireLeases("r")]


@pytest.mark.parametrize(
    ("until", "seen"),
    [
        ({"minutes": 5.0}, ObservedRun(EMPTY, active_ms=300_000)),
        ({"games": 10.0}, ObservedRun(dataclasses.replace(EMPTY, finished=10))),
        ({"steps": 7.0, "minutes": 100.0}, ObservedRun(EMPTY, learner=learner(step=8))),
    ],
)
def test_a_run_that_reached_its_goal_is_finished_and_gets_nothing_more(until: dict[str, float], seen: ObservedRun) -> None:
    [action] = decide(seen, (beat("a", "selfplay.cpu"),), until=until)
    assert isinstance(action, FinishRun)
    assert next(iter(until)) in action.reason


def test_a_run_short_of_its_goal_goes_on() -> None:
    assert EnqueueSelfplay("r", "cpu", 32, 60.0) in decide(
        ObservedRun(EMPTY, active_ms=299_999), (beat("a", "selfplay.cpu"),), until={"minutes": 5.0}
    )


def test_settings_that_do_not_parse_fail_the_run_with_the_key() -> None:
    assert decide(ObservedRun(EMPTY), sections=None) == [FailRun("r", "selfplay.oops: unknown key")]


def test_jobs_that_keep_failing_fail_the_run_and_one_success_forgives() -> None:
    failed = tuple(view(n, JobState.FAILED, ended_ms=NOW - n, error="no such observation") for n in range(1, FAILURES_IN_A_ROW + 1))
    [action] = decide(ObservedRun(EMPTY, ended=failed), (beat("a", "selfplay.cpu"),))
    assert isinstance(action, FailRun)
    assert "no such observation" in action.reason
    forgiven = (dataclasses.replace(failed[0], state=JobState.DONE), *failed[1:])
    assert not any(isinstance(action, FailRun) for action in decide(ObservedRun(EMPTY, ended=forgiven), (beat("a", "selfplay.cpu"),)))


def test_failures_from_before_the_last_resume_are_forgotten() -> None:
    failed = tuple(view(n, JobState.FAILED, ended_ms=NOW - 200_000, error="old") for n in range(FAILURES_IN_A_ROW))
    assert not any(isinstance(action, FailRun) for action in decide(ObservedRun(EMPTY, ended=failed), (beat("a", "selfplay.cpu"),)))


def test_an_ended_run_drops_queued_jobs_and_waits_for_leased_ones() -> None:
    jobs = (view(1), view(2, JobState.QUEUED), view(3, JobState.QUEUED, kind="eval"))
    assert decide(ObservedRun(EMPTY, jobs=jobs), (), state=RunState.FAILED) == [CancelQueued("r:2"), CancelQueued("r:3")]
    workers = (beat("a", "eval.cpu"),)
    assert decide(ObservedRun(EMPTY, jobs=jobs), workers, state=RunState.FINISHED, full_ms={"eval.cpu": NOW}) == [CancelQueued("r:2")]


class TestEvaluationRounds:
    """When new weights are matched and graded, and against whom."""

    workers = (beat("s", "selfplay.cpu"), beat("e", "eval.cpu"))
    busy = (view(1), view(2, JobState.QUEUED))

    def rounds(self, seen: ObservedRun, **options: object) -> list[EnqueueEval]:
        return [action for action in decide(seen, self.workers, **options) if isinstance(action, EnqueueEval)]  # type: ignore[arg-type]

    def test_new_weights_are_matched_with_the_ones_evaluated_before_and_each_opponent_and_graded(self) -> None:
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=9, round_version=4, round_ms=NOW - 120_000)
        [action] = self.rounds(seen)
        first, second, grade = action.specs
        assert isinstance(first, MatchSpec)
        assert isinstance(second, MatchSpec)
        assert (first.first, first.second, first.games) == ("weights:9", "weights:4", 8)
        assert (second.first, second.second) == ("weights:9", "uct:100")
        assert first.seed != second.seed
        assert isinstance(grade, GradeSpec)
        assert (grade.weight_version, grade.positions) == (9, 50)

    def test_the_first_round_comes_after_the_interval_and_has_no_previous(self) -> None:
        assert self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=119_999)) == []
        [action] = self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=120_000), positions=False)
        assert [spec.second for spec in action.specs if isinstance(spec, MatchSpec)] == ["uct:100"]
        assert len(action.specs) == 1

    @pytest.mark.parametrize(
        "seen",
        [
            ObservedRun(EMPTY, jobs=busy, weight_version=4, round_version=4, round_ms=NOW - 500_000),
            ObservedRun(EMPTY, jobs=busy, weight_version=9, round_version=4, round_ms=NOW - 119_999),
            ObservedRun(EMPTY, jobs=(*busy, view(3, kind="eval")), weight_version=9, round_version=4, round_ms=NOW - 500_000),
            ObservedRun(EMPTY, jobs=busy, weight_version=0, active_ms=500_000),
        ],
        ids=["no new weights", "too early", "one is under way", "no weights at all"],
    )
    def test_no_round(self, seen: ObservedRun) -> None:
        assert self.rounds(seen) == []

    def test_never_when_switched_off(self) -> None:
        sections = SECTIONS.model_copy(update={"arena": ArenaConfig(every_s=0)})
        assert self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=9, active_ms=NOW), sections=sections) == []

    def test_a_finished_run_has_its_last_weights_evaluated_once_its_games_are_back(self) -> None:
        drained = ObservedRun(EMPTY, weight_version=9, round_version=4, round_ms=NOW - 1)
        assert len(self.rounds(drained, state=RunState.FINISHED)) == 1
        assert self.rounds(dataclasses.replace(drained, jobs=(view(1),)), state=RunState.FINISHED) == []

    def test_evaluation_goes_to_another_tag_when_no_eval_worker_has_the_runs_own(self) -> None:
        sections = SECTIONS.model_copy(update={"run": RunConfig(tag="jarvis")})
        [action] = self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=120_000), sections=sections)
        assert action.tag == "cpu"

    def test_without_eval_workers_it_is_reported(self) -> None:
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=120_000)
        assert decide(seen, (beat("s", "selfplay.cpu"),), full_ms={"selfplay.cpu": NOW}) == [ReportUnroutable("r", "eval.cpu", ())]


# --- properties -----------------------------------------------------------------------------------------------------

QUEUES = ("selfplay.cpu", "selfplay.cuda", "eval.cpu", "eval.cuda")
STATES = (JobState.QUEUED, JobState.LEASED)


@st.composite
def job_views(draw: st.DrawFn, number: int) -> JobView:
    state = draw(st.sampled_from(STATES))
    return view(
        number,
        state,
        kind=draw(st.sampled_from(("selfplay", "eval"))),
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
        learner=draw(st.sampled_from((None, learner(), learner(stall_selfplay=True), learner(step=99)))),
        weight_version=draw(st.integers(0, 5)),
        round_version=draw(st.integers(0, 5)),
        round_ms=draw(st.sampled_from((0, NOW - 500_000, NOW - 1_000))),
    )
    until = draw(st.sampled_from(({}, {"games": 10.0}, {"steps": 50.0}, {"minutes": 5.0})))
    sections = SECTIONS.model_copy(update={"run": RunConfig(tag=draw(st.sampled_from(("cpu", "cuda", "jarvis"))))})
    full_ms = {queue: draw(st.sampled_from((NOW, NOW - 60_000))) for queue in QUEUES}
    return DesiredRun("r", state, sections, until, changed_ms=NOW - 100_000), Observed(workers, {"r": seen}, full_ms)


def effects(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, ReportUnroutable)]


def apply(run: DesiredRun, observed: Observed, actions: list[Action]) -> tuple[DesiredRun, Observed]:
    """What ledger and queue make of the actions, in plain values."""
    seen = observed.runs["r"]
    jobs = {job.job.job_id: job for job in seen.jobs}
    for action in actions:
        match action:
            case PublishJob(job):
                jobs[job.job.job_id] = dataclasses.replace(job, published_ms=NOW)
            case EnqueueSelfplay():
                number = len(jobs) + 1000
                jobs[f"r:{number}"] = view(number, JobState.QUEUED, tag=action.tag, published_ms=NOW)
            case EnqueueEval():
                for _ in action.specs:
                    number = len(jobs) + 1000
                    jobs[f"r:{number}"] = view(number, JobState.QUEUED, kind="eval", tag=action.tag, published_ms=NOW)
                seen = dataclasses.replace(seen, round_version=action.weight_version, round_ms=NOW)
            case ExpireLeases():
                for key, job in jobs.items():
                    if job.state is JobState.LEASED and job.lease_until_ms <= NOW:
                        jobs[key] = dataclasses.replace(job, state=JobState.QUEUED, attempt=job.attempt + 1, owner="", published_ms=0)
            case RequeueLost(job_id, attempt):
                jobs[job_id] = dataclasses.replace(jobs[job_id], attempt=attempt + 1, published_ms=NOW)
            case CancelQueued(job_id):
                del jobs[job_id]
            case FinishRun():
                run = dataclasses.replace(run, state=RunState.FINISHED)
            case FailRun():
                run = dataclasses.replace(run, state=RunState.FAILED)
    return run, dataclasses.replace(observed, runs={"r": dataclasses.replace(seen, jobs=tuple(jobs.values()))})


def step(run: DesiredRun, observed: Observed) -> list[Action]:
    return reconcile(Desired((run,)), observed, NOW, CONFIG, lambda _game: True)


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_it_settles_and_then_does_nothing(world: tuple[DesiredRun, Observed]) -> None:
    run, observed = world
    for _ in range(4):  # a goal, then dropped jobs, then the last evaluation, then nothing
        actions = effects(step(run, observed))
        run, observed = apply(run, observed, actions)
    assert effects(step(run, observed)) == []


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_it_never_enqueues_beyond_slots_and_jobs_ahead(world: tuple[DesiredRun, Observed]) -> None:
    run, observed = world
    assert run.sections is not None
    tag = run.sections.run.tag
    slots = sum(worker.slots for worker in observed.workers if queue_of("selfplay", tag) in worker.queues)
    before = sum(job.job.kind == "selfplay" and job.job.tag == tag for job in observed.runs["r"].jobs)
    new = [action for action in step(run, observed) if isinstance(action, EnqueueSelfplay)]
    if new:
        assert run.state is RunState.RUNNING
        assert slots > 0
        assert before + len(new) == slots + CONFIG.jobs_ahead


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_every_expired_lease_is_handled_and_no_live_one(world: tuple[DesiredRun, Observed]) -> None:
    run, observed = world
    expired = any(job.state is JobState.LEASED and job.lease_until_ms <= NOW for job in observed.runs["r"].jobs)
    assert (ExpireLeases("r") in step(run, observed)) == expired


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_no_job_is_touched_twice_in_one_look_and_none_that_is_leased(world: tuple[DesiredRun, Observed]) -> None:
    run, observed = world
    touched = [
        action.view.job.job_id if isinstance(action, PublishJob) else action.job_id
        for action in step(run, observed)
        if isinstance(action, PublishJob | RequeueLost | CancelQueued)
    ]
    assert len(touched) == len(set(touched))
    queued = {job.job.job_id for job in observed.runs["r"].jobs if job.state is JobState.QUEUED}
    assert set(touched) <= queued


@given(worlds())
@settings(max_examples=120, deadline=None)
def test_at_most_one_evaluation_round_is_out(world: tuple[DesiredRun, Observed]) -> None:
    run, observed = world
    rounds = [action for action in step(run, observed) if isinstance(action, EnqueueEval)]
    assert len(rounds) <= 1
    if rounds:
        assert not any(job.job.kind == "eval" for job in observed.runs["r"].jobs)


def test_runs_of_one_tag_share_its_slots() -> None:
    workers = tuple(beat(f"w{index}", "selfplay.cpu") for index in range(7))
    names = ("a", "b", "c", "held")
    desired = Desired(tuple(DesiredRun(name, RunState.RUNNING, SECTIONS) for name in names))
    runs = dict.fromkeys(names, ObservedRun(EMPTY)) | {"held": ObservedRun(EMPTY, learner=learner(stall_selfplay=True))}
    actions = reconcile(desired, Observed(workers, runs), NOW, CONFIG, lambda game: False)
    wanted = Counter(action.run for action in actions if isinstance(action, EnqueueSelfplay))
    assert wanted == dict.fromkeys("abc", 3 + CONFIG.jobs_ahead)  # a third of seven, rounded up; a run that stalls takes no share


def test_what_a_fleet_offers_is_one_value_for_each_kind_of_worker() -> None:
    workers = [beat(f"w{index}", "selfplay.cpu", slots=2) for index in range(500)] + [beat("gpu", "selfplay.cuda"), beat("idle")]
    assert condense(workers) == (Offer(("selfplay.cpu",), 1000), Offer(("selfplay.cuda",), 1))
