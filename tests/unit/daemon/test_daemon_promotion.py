"""Which version serves: decided from promotions, results and jobs alone, and asked for by hand over REST."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_broker import MemoryBus, MemoryLedger
from msgspec.structs import replace
from reconcile_worlds import SECTIONS, beat, decide, view
from rest_site import RestSite

from azq.bus.promotions import best, candidate, served
from azq.config import ArenaConfig, LearnerConfig, RunConfig, RunSections, SearchConfig, dump_run
from azq.ledger.types import JobState, LedgerCounts, RunState
from azq.ratings.matches import EVAL_PRIORITY, job_of, put_together
from azq.status.observe import VersionLook
from azq.status.state import DesiredRun, ObservedRun
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.kinds import Kind
from azq.wire.messages import EvalRound, Job, MatchResult, MatchSpec, PromotionEvent, WeightEvent
from daemon.decide import actions as do
from daemon.decide.promotion import judge, trial
from daemon.decide.rounds import SEED_LIMIT
from daemon.serve.act import Hands, act

ARENA = ArenaConfig(every_s=0, promotion="games", promotion_games=40, games=10)
GATED = SECTIONS.model_copy(update={"arena": ARENA})
WORKER = beat("w", "eval.cpu", "selfplay.cpu", slots=4)
EMPTY = ObservedRun(LedgerCounts(0, 0, 0, 0, 0, 0, 0))


def result(spec: MatchSpec, wins: int, draws: int = 0) -> MatchResult:
    return MatchResult(spec, spec.first, spec.second, wins, draws, spec.games - wins - draws, 0)


class Course:
    """A run whose versions are as strong as they are told to be, and a daemon that may die between any two of its actions."""

    def __init__(self, strengths: list[int]) -> None:
        self.strengths = strengths
        self.events: list[PromotionEvent] = []
        self.matches: list[MatchResult] = []
        self.jobs: list[Job] = []
        self.asked: list[MatchSpec] = []

    def look(self, newest: int) -> ObservedRun:
        jobs = tuple(
            dataclasses.replace(view(number, JobState.QUEUED, kind=Kind.EVAL), job=job) for number, job in enumerate(self.jobs, start=1)
        )
        told = {"promotions": tuple(self.events), "matches": tuple(put_together(self.matches)), "jobs": jobs}
        return dataclasses.replace(EMPTY, weight_version=newest, first_version=1, **told)  # type: ignore[arg-type]

    def tick(self, newest: int, dies_after: int, done: int) -> bool:
        """The daemon looks and does so many of its actions, then a worker plays one of the matches; False where nothing was left."""
        actions = [action for action in decide(self.look(newest), (WORKER,), sections=GATED) if self._is_ours(action)]
        for action in actions[:dies_after]:
            if isinstance(action, do.Promote):
                self.events.append(action.event)
            elif isinstance(action, do.EnqueueJob):
                self.jobs.append(action.job)
                self.asked.append(decode(action.job.payload, MatchSpec))
        if self.jobs:
            spec = decode(self.jobs.pop(done % len(self.jobs)).payload, MatchSpec)
            first, second = (self.strengths[int(player.partition(":")[2]) - 1] for player in (spec.first, spec.second))
            self.matches.append(result(spec, spec.games if first > second else 0))
        return bool(actions)

    @staticmethod
    def _is_ours(action: Any) -> bool:
        return isinstance(action, do.Promote) or (isinstance(action, do.EnqueueJob) and action.job.kind == Kind.EVAL)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_whatever_dies_the_stronger_is_promoted_once_and_no_match_is_played_twice(strengths: list[int], data: st.DataObject) -> None:
    course = Course(strengths)
    for newest in range(1, len(strengths) + 1):
        for _ in range(data.draw(st.integers(0, 6))):
            course.tick(newest, data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    for _ in range(100):
        course.tick(len(strengths), 9, 0)
    bests = served(course.events)
    assert bests[0] == 1
    assert bests == sorted(set(bests))
    assert all(strengths[one - 1] < strengths[other - 1] for one, other in itertools.pairwise(bests))
    assert len(course.asked) == len(set(course.asked))
    assert candidate(course.events) == 0
    assert len(strengths) == 1 or course.events[-1].version == len(strengths)  # the newest was tried
    assert strengths[best(course.events) - 1] >= strengths[-1]


def test_newer_ones_wait_while_one_is_tried_and_a_pin_stops_it_all() -> None:
    course = Course([1] * 9)
    course.tick(1, 9, 0)
    course.tick(2, 9, 0)
    assert [(one.version, one.deed) for one in course.events] == [(1, "promoted"), (2, "candidate")]
    assert {spec.first for spec in course.asked} == set()
    course.tick(5, 9, 0)
    assert {spec.first for spec in course.asked} == {"weights:2"}
    assert len(course.asked) == 2  # half of the slots
    course.events.append(PromotionEvent(1, "pinned", "", "", 0))
    assert not course.tick(5, 9, 0)
    course.events.append(PromotionEvent(1, "unpinned", "", "", 0))
    while course.tick(5, 9, 0):
        pass
    assert [one.version for one in course.events if one.deed == "rejected"] == [2, 5]


def test_matches_that_nobody_waits_for_are_cancelled_and_no_round_waits_for_trials() -> None:
    (spec, *_) = trial(ARENA, 0, 2, 1)
    queued = dataclasses.replace(view(1, JobState.QUEUED, kind=Kind.EVAL), job=Job("r:1", "r", Kind.EVAL, "cpu", payload=encode(spec)))
    lost = tuple(put_together(result(one, 0) for one in trial(ARENA, 0, 2, 1)[:3]))
    events = (PromotionEvent(1, "promoted", "", "", 0), PromotionEvent(2, "candidate", "", "", 0))
    seen = dataclasses.replace(EMPTY, weight_version=2, promotions=events, matches=lost, jobs=(queued,))
    actions = decide(seen, (WORKER,), sections=GATED)
    assert do.CancelQueued("r:1") in actions
    rounds = GATED.model_copy(update={"arena": ARENA.model_copy(update={"every_s": 1.0})})
    waiting = dataclasses.replace(seen, matches=(), active_ms=10_000, round=EvalRound(1, 1))
    assert any(isinstance(action, do.EnqueueEval) for action in decide(waiting, (WORKER,), sections=rounds))
    leased = dataclasses.replace(queued, state=JobState.LEASED)
    others = dataclasses.replace(seen, jobs=(leased, view(2, JobState.QUEUED)))
    assert not any(isinstance(action, do.CancelQueued) for action in decide(others, (WORKER,), sections=GATED))
    assert not _tries(decide(waiting, (WORKER,), sections=GATED, state=RunState.FINISHED))
    assert not _tries(decide(waiting, (WORKER,)))  # whose newest weights serve


def _tries(actions: Sequence[Any]) -> list[Any]:
    return [each for each in actions if isinstance(each, do.Promote) or (isinstance(each, do.EnqueueJob) and each.job.kind is Kind.EVAL)]


@pytest.mark.parametrize(("slots", "leased", "asked"), [(1, 0, 1), (2, 0, 1), (4, 0, 2), (4, 2, 0), (4, 3, 0), (8, 1, 3)])
def test_trials_take_half_of_the_slots(slots: int, leased: int, asked: int) -> None:
    parts = trial(ARENA, 0, 2, 1)
    jobs = [dataclasses.replace(view(n, JobState.LEASED, kind=Kind.EVAL), job=job_of("r", "cpu", part)) for n, part in enumerate(parts)]
    events = (PromotionEvent(1, "promoted", "", "", 0), PromotionEvent(2, "candidate", "", "", 0))
    seen = dataclasses.replace(EMPTY, weight_version=2, promotions=events, jobs=tuple(jobs[:leased]))
    workers = (beat("w", "eval.cpu", "selfplay.cpu", slots=slots),)
    assert len(_tries(decide(seen, workers, sections=GATED))) == min(asked, len(parts) - leased)


@pytest.mark.parametrize(
    ("promotion", "scores", "left", "verdict"),
    [
        ("games", [(6, 0)], 30, None),
        ("games", [(10, 0), (10, 0), (2, 0)], 10, "promoted"),  # 22 of 40 points are 55 %
        ("games", [(10, 0), (10, 0), (1, 0)], 10, None),
        ("games", [(0, 4), (1, 0), (0, 0)], 10, "rejected"),  # the rest does not reach it any more
        ("games", [(10, 0), (2, 0), (0, 0)], 10, None),  # the rest just reaches it
        ("games", [(5, 0), (5, 0), (5, 0), (5, 0)], 0, "rejected"),
        ("games", [(0, 10), (0, 10), (0, 10), (0, 10)], 0, "rejected"),
        ("games", [], 0, "rejected"),
        ("sprt", [(10, 0)] * 4, 100, "promoted"),
        ("sprt", [(0, 0)] * 4, 100, "rejected"),
        ("sprt", [(5, 0)] * 2, 100, None),
        ("sprt", [(5, 0)] * 2, 0, "rejected"),
    ],
)
def test_verdicts(promotion: Any, scores: list[tuple[int, int]], left: int, verdict: str | None) -> None:
    played = [result(spec, *score) for spec, score in zip(trial(ARENA, 0, 2, 1), scores, strict=False)]
    found = judge(ARENA.model_copy(update={"promotion": promotion}), played, left)
    assert (found and found[0]) == verdict


def test_among_three_a_smaller_share_of_first_places_is_enough() -> None:
    played = [replace(result(spec, 4), seats=3, share=0.4) for spec in trial(ARENA, 0, 2, 1)]
    assert judge(ARENA, played, 0) == ("promoted", "16 won, 0 drawn, 24 lost")  # of 40, where 15.2 are needed
    assert judge(ARENA, [replace(each, wins=3, losses=7, share=0.3) for each in played], 0) == ("rejected", "12 won, 0 drawn, 28 lost")


def test_a_trial_keeps_its_seed_for_whoever_goes_on_with_it() -> None:
    assert trial(ARENA, 3, 5, 4)[0].seed == 2**62 + 3_045_082  # its parts are known by it, also after an update of azq


def test_each_trial_has_games_of_its_own_and_its_parts_have_as_many_as_asked_for() -> None:
    parts = trial(ARENA.model_copy(update={"promotion_games": 25}), 0, 2, 1)
    assert [(part.first_game, part.games, part.of_games) for part in parts] == [(0, 8, 25), (8, 8, 25), (16, 9, 25)]
    seeds = {part.seed for pair in ((2, 1), (3, 1), (3, 2)) for part in trial(ARENA, 0, *pair)}
    assert len(seeds) == 3
    assert min(seeds) > SEED_LIMIT // 2  # far above those of rounds
    assert [(part.games, part.of_games) for part in trial(ARENA.model_copy(update={"promotion_games": 10}), 0, 2, 1)] == [(10, 0)]


def test_a_trial_comes_before_self_play_as_rounds_do_and_asks_only_for_parts_that_nobody_has() -> None:
    parts = trial(ARENA, 0, 2, 1)
    queued = dataclasses.replace(view(1, JobState.LEASED, kind=Kind.EVAL), job=job_of("r", "cpu", parts[0]))
    events = (PromotionEvent(1, "promoted", "", "", 0), PromotionEvent(2, "candidate", "", "", 0))
    played = tuple(put_together([result(parts[1], 5)]))
    seen = dataclasses.replace(EMPTY, weight_version=2, promotions=events, matches=played, jobs=(queued,))
    enqueued = [action.job for action in decide(seen, (WORKER,), sections=GATED) if isinstance(action, do.EnqueueJob)]
    asked = [job for job in enqueued if job.kind is Kind.EVAL]
    assert [(decode(job.payload, MatchSpec), job.games, job.priority) for job in asked] == [(parts[2], parts[2].games, EVAL_PRIORITY)]
    assert all(job.priority > EVAL_PRIORITY for job in enqueued if job.kind is Kind.SELFPLAY)


class Site(RestSite):
    """The REST interface over doubles, with a run of four versions."""

    def __init__(self, uri: str = "file:x", **sections: Any) -> None:
        super().__init__()
        body = {"name": "r", "sections": dump_run(RunSections(run=RunConfig(game="tic_tac_toe"), **sections))}
        assert self.http.post("/v1/runs", json=body).status_code == 201
        for version in (1, 2, 3, 4):
            event = WeightEvent("r", version, f"{version:064x}", uri, 10 * version, 0, size=1000 * version)
            self.bus.publish(keys.weights("r"), encode(event))

    def ask(self, what: str) -> tuple[int, Any]:
        """Status, and the version that serves or the reason."""
        answer = self.http.post(f"/v1/runs/r/weights/{what}", json={"reason": "because"})
        return answer.status_code, answer.json().get("serving", answer.json().get("detail"))

    def list(self, query: str = "") -> dict[int, dict[str, Any]]:
        return {one["version"]: one for one in self.http.get(f"/v1/runs/r/weights{query}").json()}


def test_a_run_that_follows_its_newest_weights_is_pinned_by_hand() -> None:
    site = Site()
    assert site.list()[4]["serves"]
    assert site.ask("unpin") == (409, "no version of run r is pinned; it follows the newest")
    assert site.ask("2/pin") == (200, 2)
    assert site.ask("rollback") == (200, 1)
    assert site.ask("rollback")[0] == 409
    assert site.ask("3/promote") == (200, 3)
    told = site.list("?limit=1")
    assert sorted(told) == [3, 4]  # what serves is there however old it is
    assert (told[3]["serves"], told[3]["pinned"], told[3]["size"], told[4]["serves"]) == (True, True, 3000, False)
    assert site.ask("unpin") == (200, 4)
    assert site.ask("9/pin") == (404, "run r has no weights 9; the newest are 4")
    event = decode(site.bus.newest(keys.promotions("r"))[0].frame, PromotionEvent)
    assert (event.version, event.deed, event.reason, event.who) == (3, "unpinned", "because", "local")


def test_where_versions_are_promoted_one_goes_back_to_earlier_bests() -> None:
    site = Site(arena=ArenaConfig(promotion="sprt"))
    assert site.list()[1]["serves"]
    assert site.ask("1/promote") == (200, 1)
    assert site.ask("3/promote") == (200, 3)
    assert site.ask("rollback") == (200, 1)
    assert site.ask("rollback") == (409, "run r has no earlier version to go back to; `azq weights pin r VERSION` names any")
    assert (site.list()[3]["state"], site.list()[1]["state"]) == ("promoted", "rolled_back")
    assert site.ask("2/pin") == (200, 2)
    assert site.ask("4/promote") == (409, "version 2 of run r is pinned; `azq weights unpin r` first")
    assert site.ask("rollback")[0] == 409
    assert site.ask("unpin") == (200, 1)


@pytest.mark.parametrize("state", ["finish", "lockstep", "forgotten"])
def test_what_cannot_be_is_refused_in_one_line(state: str) -> None:
    lockstep = {"learner": LearnerConfig(lockstep_games=8, lr_drops=()), "search": SearchConfig(reuse_subtree=False)}
    site = Site("redis:x" if state == "forgotten" else "file:x", **(lockstep if state == "lockstep" else {}))
    if state == "finish":
        site.http.post("/v1/runs/r/finish")
    status, reason = site.ask("2/pin")
    expected = {
        "finish": (409, "run r is finished; resume it first"),
        "lockstep": (409, "in lockstep"),
        "forgotten": (404, "weights 2 of run r are not kept any more"),
    }[state]
    assert status == expected[0]
    assert expected[1] in reason
    assert "\n" not in reason
    assert site.bus.length(keys.promotions("r")) == 0


def test_the_list_says_what_versions_played() -> None:
    site = Site()
    spec = MatchSpec("weights:4", "uct:100", 20, 8, 0, 1)
    for played in (result(spec, 12), result(spec, 8), MatchResult(spec, "weights:3", "weights:4", 5, 0, 5, 0)):
        site.bus.publish(keys.results("r"), encode(played))
    assert site.list()[4]["opponents"] == {"uct:100": 40, "weights:3": 10}


def test_what_somebody_decided_meanwhile_stands() -> None:
    bus = MemoryBus()
    hands, event = Hands(MemoryLedger(bus), bus, lambda _view, _game: None), PromotionEvent(1, "promoted", "", "daemon", 5)
    act([do.Promote("r", event, "0")], hands)
    (first,) = bus.newest(keys.promotions("r"))
    act([do.Promote("r", event, "0")], hands)
    assert bus.length(keys.promotions("r")) == 1
    act([do.Promote("r", event, first.id)], hands)
    assert bus.length(keys.promotions("r")) == 2
    bus.delete(keys.promotions("r"))
    act([do.Promote("r", event, first.id)], hands)
    assert bus.length(keys.promotions("r")) == 0, "decided of an earlier run of this name"


def test_a_broker_restored_from_an_older_copy_does_not_keep_versions_from_being_promoted() -> None:
    bus = MemoryBus()
    look = VersionLook(bus, "r")
    for version in (1, 2):
        bus.publish(keys.promotions("r"), encode(PromotionEvent(version, "promoted", "", "daemon", 5)))
    run, (newest,) = DesiredRun("r", RunState.RUNNING, None), bus.newest(keys.promotions("r"))
    assert look.observed(run, EMPTY, None, newest, None).promotions_id == newest.id
    bus.delete(keys.promotions("r"))
    after = look.observed(run, EMPTY, None, None, None)
    assert (after.promotions, after.promotions_id) == ((), "0")
