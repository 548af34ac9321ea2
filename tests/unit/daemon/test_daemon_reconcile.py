"""The daemon's decision, rule by rule."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
import pytest
from factories import learner_status
from reconcile_worlds import CONFIG, EMPTY, NOW, SECTIONS, WAITING, beat, decide, observed, view

from azq.config import ArenaConfig, RunConfig, RunSections, VolunteersConfig
from azq.ledger.types import JobState, RunState
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.wire.kinds import Kind
from azq.wire.messages import EvalRound, GradeSpec, Heartbeat, Job, MatchSpec
from daemon.decide.actions import (
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

SELFPLAY = EnqueueJob(Job("", "r", Kind.SELFPLAY, "cpu", games=32, slice_s=60.0, stall_s=10.0))


def test_fills_the_slots_of_live_workers_and_keeps_one_job_ahead() -> None:
    workers = (beat("a", "selfplay.cpu", slots=2), beat("b", "selfplay.cpu", "eval.cpu"), beat("c", "selfplay.cuda", slots=9))
    actions = decide(ObservedRun(EMPTY, jobs=(view(1),)), workers)
    assert actions == [dataclasses.replace(SELFPLAY, job=msgspec.structs.replace(SELFPLAY.job, stall_s=1.0))] * 3


@pytest.mark.parametrize(
    ("queues", "stall_s"),
    [
        ([("selfplay.cpu",), ("eval.cpu",)], 10.0),
        ([("selfplay.cpu", "selfplay.cuda")], 10.0),
        ([("selfplay.cpu", "eval.cuda")], 1.0),
        ([("selfplay.cpu",), ("eval.cpu", "selfplay.cpu")], 1.0),
        ([("selfplay.cpu",), ("eval.cpu", "selfplay.cuda")], 10.0),
    ],
)
def test_a_slot_that_evaluations_wait_for_is_kept_a_second_by_a_slice_that_stalls(queues: list[tuple[str, ...]], stall_s: float) -> None:
    workers = tuple(beat(str(number), *each) for number, each in enumerate(queues))
    enqueued = [action for action in decide(ObservedRun(EMPTY), workers) if isinstance(action, EnqueueJob)]
    assert {action.job.stall_s for action in enqueued} == {stall_s}


@pytest.mark.parametrize(
    "seen",
    [
        ObservedRun(EMPTY, learner=learner_status(stall_selfplay=True)),
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
    assert actions == [Condition("unroutable", "r", "selfplay.cpu")]
    assert "(live selfplay tags: cuda, jarvis)" in str(actions[0])
    assert "azq worker --queues selfplay.cpu" in str(actions[0])


def test_a_queued_job_whose_workers_went_away_is_reported_not_published() -> None:
    queued = view(1, JobState.QUEUED, tag="jarvis", published_ms=0)
    actions = decide(ObservedRun(EMPTY, jobs=(queued, view(2), view(3))), (beat("a", "selfplay.cpu"),))
    assert actions == [Condition("unroutable", "r", "selfplay.jarvis")]


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
    seen = ObservedRun(EMPTY, jobs=(queued, view(2, published_ms=published_ms)))
    actions = decide(seen, (beat("a", "selfplay.cpu"),), full_ms={"selfplay.cpu": full_ms})
    assert actions == ([RequeueLost("r:7", 2)] if lost else [])


@pytest.mark.parametrize(
    ("published_ms", "priority", "lost"),
    [(NOW - 16_000, 6, True), (NOW - 15_999, 6, False), (NOW - 90_000, 3, False)],
    ids=["a later one was taken", "only a little later", "a later one of another priority"],
)
def test_a_message_that_later_ones_overtook_is_lost_on_a_full_fleet_too(published_ms: int, priority: int, lost: bool) -> None:
    job = Job("r:7", "r", Kind.SELFPLAY, "cpu", priority=priority)
    queued = view(7, JobState.QUEUED, job=job, published_ms=published_ms)
    desired = Desired((DesiredRun("r", RunState.RUNNING, SECTIONS), DesiredRun("busy", RunState.PAUSED, SECTIONS)))
    runs = {"r": ObservedRun(EMPTY, jobs=(queued, view(2, published_ms=0))), "busy": ObservedRun(EMPTY, jobs=(view(1, run="busy"),))}
    seen = observed((beat("a", "selfplay.cpu"),), runs, {"selfplay.cpu": NOW})
    assert reconcile(desired, seen, NOW, CONFIG, lambda _: True) == ([RequeueLost("r:7", 1)] if lost else [])


@pytest.mark.parametrize("state", list(RunState))
def test_expired_leases_are_taken_back_in_every_run_state(state: RunState) -> None:
    actions = decide(ObservedRun(EMPTY, jobs=(view(1, lease_until_ms=NOW), view(2))), (beat("a", "selfplay.cpu"),), state=state)
    assert actions == [ExpireLeases("r")]


@pytest.mark.parametrize(
    ("until", "seen"),
    [
        ({"minutes": 5.0}, ObservedRun(EMPTY, active_ms=300_000)),
        ({"games": 10.0}, ObservedRun(dataclasses.replace(EMPTY, finished=10))),
        ({"steps": 7.0, "minutes": 100.0}, ObservedRun(EMPTY, learner=learner_status(step=8))),
    ],
)
def test_a_run_that_reached_its_goal_is_finished_and_gets_nothing_more(until: dict[str, float], seen: ObservedRun) -> None:
    [action] = decide(seen, (beat("a", "selfplay.cpu"),), until=until)
    assert isinstance(action, EndRun)
    assert action.state is RunState.FINISHED
    assert next(iter(until)) in action.reason


def test_a_run_short_of_its_goal_goes_on() -> None:
    assert SELFPLAY in decide(ObservedRun(EMPTY, active_ms=299_999), (beat("a", "selfplay.cpu"),), until={"minutes": 5.0})


def test_settings_that_do_not_parse_fail_the_run_with_the_key() -> None:
    assert decide(ObservedRun(EMPTY), sections=None) == [EndRun("r", RunState.FAILED, "selfplay.oops: unknown key", NOW - 100_000)]


def test_jobs_that_keep_failing_fail_the_run_and_one_success_forgives() -> None:
    failed = tuple(view(n, JobState.FAILED, ended_ms=NOW - n, error=f"no observation {n}") for n in range(1, 6))
    [action] = decide(ObservedRun(EMPTY, ended=failed), (beat("a", "selfplay.cpu"),))
    assert action == EndRun("r", RunState.FAILED, "5 self-play jobs in a row failed; the last one: no observation 1", NOW - 100_000)
    assert not any(isinstance(action, EndRun) for action in decide(ObservedRun(EMPTY, ended=failed[:4]), (beat("a", "selfplay.cpu"),)))
    forgiven = (dataclasses.replace(failed[0], state=JobState.DONE), *failed[1:])
    assert not any(isinstance(action, EndRun) for action in decide(ObservedRun(EMPTY, ended=forgiven), (beat("a", "selfplay.cpu"),)))


@pytest.mark.parametrize("set_ms", [-3_600_000, 0, 3_600_000], ids=["clock set back", "clock left alone", "clock set on"])
def test_failures_from_before_the_last_resume_are_forgotten(set_ms: int) -> None:
    seen = ObservedRun(EMPTY, ended=tuple(view(n, JobState.FAILED, ended_ms=NOW - 100_000 + set_ms, error="old") for n in range(9, 4, -1)))
    for newest, ends in ((4, True), (5, False), (9, False)):
        actions = decide(seen, (beat("a", "selfplay.cpu"),), changed_job=newest)
        assert any(isinstance(action, EndRun) for action in actions) == ends


def test_an_ended_run_drops_queued_jobs_and_waits_for_leased_ones() -> None:
    jobs = (view(1), view(2, JobState.QUEUED), view(3, JobState.QUEUED, kind=Kind.EVAL))
    assert decide(ObservedRun(EMPTY, jobs=jobs), (), state=RunState.FAILED) == [CancelQueued("r:2"), CancelQueued("r:3")]
    workers = (beat("a", "eval.cpu"),)
    assert decide(ObservedRun(EMPTY, jobs=jobs), workers, state=RunState.FINISHED, full_ms={"eval.cpu": NOW}) == [CancelQueued("r:2")]


def test_an_ended_run_whose_settings_do_not_parse_is_only_tidied_up() -> None:
    jobs = (view(1), view(2, JobState.QUEUED))
    for state in (RunState.FINISHED, RunState.FAILED):
        assert decide(ObservedRun(EMPTY, jobs=jobs), state=state, sections=None) == [CancelQueued("r:2")]


def test_a_job_behind_a_leased_one_is_published_too() -> None:
    jobs = (view(1), view(2, JobState.QUEUED, published_ms=0))
    assert PublishJob(jobs[1]) in decide(ObservedRun(EMPTY, jobs=jobs), (beat("a", "selfplay.cpu"),))


def test_goals_nobody_has_begun_or_knows_are_not_reached() -> None:
    for until in ({"steps": 1.0}, {"moves": 1.0}):
        assert not any(isinstance(action, EndRun) for action in decide(ObservedRun(EMPTY), (), until=until))
    assert decide(ObservedRun(EMPTY), (), until={"steps": 0.0}) == [EndRun("r", RunState.FINISHED, "steps=0 reached", NOW - 100_000)]


class TestEvaluationRounds:
    """When new weights are matched and graded, and against whom."""

    workers = (beat("s", "selfplay.cpu"), beat("e", "eval.cpu"))
    busy = (view(1), view(2, JobState.QUEUED))

    def rounds(self, seen: ObservedRun, **options: object) -> list[EnqueueEval]:
        return [action for action in decide(seen, self.workers, **options) if isinstance(action, EnqueueEval)]  # type: ignore[arg-type]

    def test_new_weights_are_matched_with_the_ones_evaluated_before_and_each_opponent_and_graded(self) -> None:
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=9, round=EvalRound(4, NOW - 120_000))
        [action] = self.rounds(seen)
        grade, first, second = action.specs
        assert isinstance(first, MatchSpec)
        assert isinstance(second, MatchSpec)
        assert (first.first, first.second, first.games) == ("weights:9", "weights:4", 8)
        assert (second.first, second.second) == ("weights:9", "uct:100")
        assert first.seed != second.seed
        assert isinstance(grade, GradeSpec)
        assert (grade.weight_version, grade.positions) == (9, 50)

    def test_the_first_grade_is_no_complaint_while_workers_still_start_nor_the_last_round_of_a_finished_run(self) -> None:
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=1)
        assert not any(isinstance(action, Condition) for action in decide(seen, self.workers[:1], full_ms={"selfplay.cpu": NOW}))
        [last] = self.rounds(ObservedRun(EMPTY, weight_version=9, active_ms=1), state=RunState.FINISHED)
        assert len(last.specs) == 2

    def test_the_first_round_of_a_game_without_positions_comes_after_twenty_seconds_and_has_no_previous(self) -> None:
        assert self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=19_999), positions=False) == []
        [action] = self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=20_000), positions=False)
        assert [spec.second for spec in action.specs if isinstance(spec, MatchSpec)] == ["uct:100"]
        assert len(action.specs) == 1

    @pytest.mark.parametrize(
        "seen",
        [
            ObservedRun(EMPTY, jobs=busy, weight_version=4, round=EvalRound(4, NOW - 500_000)),
            ObservedRun(EMPTY, jobs=busy, weight_version=9, round=EvalRound(4, NOW - 119_999)),
            ObservedRun(EMPTY, jobs=(*busy, view(3, kind=Kind.EVAL)), weight_version=9, round=EvalRound(4, NOW - 500_000)),
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
        drained = ObservedRun(EMPTY, weight_version=9, round=EvalRound(4, NOW - 1))
        assert len(self.rounds(drained, state=RunState.FINISHED)) == 1
        assert self.rounds(dataclasses.replace(drained, jobs=(view(1),)), state=RunState.FINISHED) == []

    @pytest.mark.parametrize("positions", [0, 1])
    def test_as_many_positions_are_graded_as_asked_for(self, positions: int) -> None:
        arena = SECTIONS.arena.model_copy(update={"grade_positions": positions})
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=9, round=EvalRound(4, NOW - 120_000))
        [action] = self.rounds(seen, sections=SECTIONS.model_copy(update={"arena": arena}))
        assert [spec.positions for spec in action.specs if isinstance(spec, GradeSpec)] == [positions] * positions

    def test_a_finished_run_settles_before_its_last_round(self) -> None:
        drained = ObservedRun(EMPTY, weight_version=9, round=EvalRound(4, NOW - 500_000))
        assert self.rounds(drained, state=RunState.FINISHED, changed_ms=NOW - 3_999) == []
        assert len(self.rounds(drained, state=RunState.FINISHED, changed_ms=NOW - 4_000)) == 1
        assert self.rounds(drained, state=RunState.FINISHED, changed_ms=NOW) == []
        assert len(self.rounds(drained, state=RunState.FINISHED, changed_ms=NOW + 1)) == 1  # the clock was set back
        assert len(self.rounds(drained, changed_ms=NOW - 1)) == 1  # a running one has nothing to wait for

    def test_a_paused_run_gets_no_round(self) -> None:
        assert self.rounds(ObservedRun(EMPTY, weight_version=9, round=EvalRound(4, NOW - 500_000)), state=RunState.PAUSED) == []

    def test_evaluation_goes_to_another_tag_when_no_eval_worker_has_the_runs_own(self) -> None:
        sections = SECTIONS.model_copy(update={"run": RunConfig(tag="jarvis")})
        [action] = self.rounds(ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=120_000), sections=sections)
        assert action.tag == "cpu"

    def test_without_eval_workers_it_is_reported(self) -> None:
        seen = ObservedRun(EMPTY, jobs=self.busy, weight_version=1, active_ms=120_000)
        assert decide(seen, (beat("s", "selfplay.cpu"),), full_ms={"selfplay.cpu": NOW}) == [Condition("unroutable", "r", "eval.cpu")]


def test_runs_of_one_tag_share_its_slots() -> None:
    workers = tuple(beat(f"w{index}", "selfplay.cpu") for index in range(7))
    names = ("a", "b", "c", "held")
    desired = Desired(tuple(DesiredRun(name, RunState.RUNNING, SECTIONS) for name in names))
    runs = dict.fromkeys(names, ObservedRun(EMPTY)) | {"held": ObservedRun(EMPTY, learner=learner_status(stall_selfplay=True))}
    actions = reconcile(desired, Observed(workers, runs), NOW, CONFIG, lambda game: False)
    wanted = Counter(action.job.run for action in actions if isinstance(action, EnqueueJob))
    assert wanted == dict.fromkeys("abc", 3 + CONFIG.jobs_ahead)  # a third of seven, rounded up; a run that stalls takes no share
    assert {action.job.stall_s for action in actions if isinstance(action, EnqueueJob)} == {1.0}, (
        "none keeps a slot long that it cannot use"
    )


VOLUNTEERED = SECTIONS.model_copy(update={"volunteers": VolunteersConfig(kinds=("selfplay",), slice_s=90.0)})


def test_tabs_get_jobs_of_their_own_where_the_run_wants_them_and_a_gateway_is_there() -> None:
    gateway, worker = beat("g", "selfplay.browser", slots=2), beat("w", "selfplay.cpu")
    tabs = EnqueueJob(Job("", "r", Kind.SELFPLAY, "browser", slice_s=90.0))
    assert decide(ObservedRun(EMPTY), (gateway, worker), sections=VOLUNTEERED) == [SELFPLAY, SELFPLAY, tabs, tabs, tabs]
    assert decide(ObservedRun(EMPTY), (gateway, worker)) == [SELFPLAY, SELFPLAY], (
        "volunteers take nothing from a run that does not want them"
    )
    assert decide(ObservedRun(EMPTY), (worker,), sections=VOLUNTEERED) == [SELFPLAY, SELFPLAY], "nobody misses a gateway"
    leased = tuple(view(number, tag="browser") for number in (1, 2, 3))
    assert decide(ObservedRun(EMPTY, jobs=leased), (gateway, worker), sections=VOLUNTEERED) == [SELFPLAY, SELFPLAY]
    unroutable = Condition("unroutable", "r", "selfplay.cpu")
    assert decide(ObservedRun(EMPTY), (gateway,), sections=VOLUNTEERED) == [unroutable, tabs, tabs, tabs]


def test_what_tabs_do_fails_no_run() -> None:
    failed = tuple(view(number, JobState.FAILED, tag="browser", ended_ms=NOW) for number in range(9))
    assert not [action for action in decide(ObservedRun(EMPTY, ended=failed), sections=VOLUNTEERED) if isinstance(action, EndRun)]


MATCHED = SECTIONS.model_copy(update={"volunteers": VolunteersConfig(kinds=("selfplay", "eval"))})
TABS, SERVERS, PLAYER = beat("g", "selfplay.browser", "eval.browser"), beat("e", "eval.cpu"), beat("s", "selfplay.cpu")
DUE = ObservedRun(
    EMPTY, jobs=(view(1), view(2), *(view(n, tag="browser") for n in (3, 4))), weight_version=9, round=EvalRound(4, NOW - 120_000)
)


def test_tabs_get_the_matches_between_versions_and_nothing_else_of_a_round() -> None:
    [action] = [action for action in decide(DUE, (PLAYER, SERVERS, TABS), sections=MATCHED) if isinstance(action, EnqueueEval)]
    (match,) = action.for_tabs
    assert (match.first, match.second) == ("weights:9", "weights:4")
    assert (action.tag, [type(spec) for spec in action.specs]) == ("cpu", [GradeSpec, MatchSpec])
    assert "uct:100" in {spec.second for spec in action.specs if isinstance(spec, MatchSpec)}


@pytest.mark.parametrize(
    ("sections", "workers", "state"),
    [
        (VOLUNTEERED, (PLAYER, SERVERS, TABS), RunState.RUNNING),
        (MATCHED, (PLAYER, SERVERS, beat("g", "selfplay.browser")), RunState.RUNNING),
        (MATCHED, (PLAYER, SERVERS, TABS), RunState.FINISHED),
    ],
    ids=["the run does not want it", "no tab plays matches", "a finished run has no tabs"],
)
def test_servers_play_all_matches_where_tabs_cannot(sections: RunSections, workers: tuple[Heartbeat, ...], state: RunState) -> None:
    seen = DUE if state is RunState.RUNNING else dataclasses.replace(DUE, jobs=())
    [action] = [action for action in decide(seen, workers, sections=sections, state=state) if isinstance(action, EnqueueEval)]
    assert (action.for_tabs, len(action.specs)) == ((), 3)


def test_a_round_for_tabs_alone_needs_no_server() -> None:
    arena = SECTIONS.arena.model_copy(update={"opponents": ("previous",), "grade_positions": 0})
    sections = MATCHED.model_copy(update={"arena": arena})
    [action] = [action for action in decide(DUE, (PLAYER, TABS), sections=sections) if isinstance(action, EnqueueEval)]
    assert (len(action.for_tabs), action.specs) == (1, ())


@pytest.mark.parametrize(
    ("workers", "state", "attempt", "expected"),
    [
        ((SERVERS, TABS), RunState.RUNNING, 1, "tabs"),
        ((SERVERS, TABS), RunState.RUNNING, 2, "servers"),
        ((TABS,), RunState.RUNNING, 2, "tabs"),
        ((SERVERS,), RunState.RUNNING, 1, "servers"),
        ((SERVERS, TABS), RunState.FINISHED, 1, "servers"),
        ((), RunState.RUNNING, 1, "nobody"),
    ],
)
def test_a_match_that_tabs_leave_goes_to_servers_where_there_are_any(
    workers: tuple[Heartbeat, ...], state: RunState, attempt: int, expected: str
) -> None:
    waiting = view(9, JobState.QUEUED, kind=Kind.EVAL, tag="browser", published_ms=0, attempt=attempt)
    actions = decide(ObservedRun(EMPTY, jobs=(waiting,)), workers, sections=MATCHED, state=state)
    moved = EnqueueJob(Job("", "r", Kind.EVAL, "cpu"))
    assert (PublishJob(waiting) in actions) is (expected == "tabs")
    assert (CancelQueued("r:9") in actions) is (expected != "tabs")
    assert (moved in actions) is (expected == "servers")
