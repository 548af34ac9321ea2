"""Heartbeats are read once for all who ask, decoded when they changed, and never kept too long."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from factories import heartbeat
from memory_broker import MemoryBus
from reconcile_worlds import view

from azq.bus.base import Entry
from azq.ratings.matches import WholeMatch, put_together, split
from azq.status.observe import Beats, Standings, split_results, uncut
from azq.status.summary import under_way
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat, Job, MatchResult, MatchSpec


def beat(worker: str = "w", run: str = "", **changes: Any) -> Heartbeat:
    return heartbeat(**{"worker": worker, "run": run, **changes})


class World:
    """A bus with heartbeats, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now, self.bus = 0.0, MemoryBus()
        self.beats = Beats(self.bus, max_age_s=1.0, clock=lambda: self.now)

    def put(self, *beats: Heartbeat) -> None:
        for one in beats:
            self.bus.put(keys.beat(one.worker), encode(one))


def test_a_reading_serves_for_a_while_and_a_refresh_serves_everybody() -> None:
    world = World()
    world.put(beat("a"))
    assert [one.worker for one in world.beats.read()] == ["a"]
    world.put(beat("b"))
    world.now = 0.9
    assert [one.worker for one in world.beats.read()] == ["a"]
    assert [one.worker for one in world.beats.refresh()] == ["a", "b"]
    world.bus.delete(keys.beat("a"))
    world.now = 2.0
    assert [one.worker for one in world.beats.read()] == ["b"]


def test_an_unchanged_heartbeat_is_the_same_object_and_a_broken_one_is_left_out() -> None:
    world = World()
    world.put(beat("a"), beat("b"))
    first = world.beats.refresh()
    world.put(beat("b", sent_ms=5))
    world.bus.put(keys.beat("c"), b"nonsense")
    second = world.beats.refresh()
    assert second[0] is first[0]
    assert (second[1].sent_ms, len(second)) == (5, 2)


def test_a_team_has_its_own_and_the_unbound_workers_and_is_put_together_once() -> None:
    world = World()
    world.put(
        beat("a", weight_versions={"mine": 2}),
        beat("b", "mine", weight_versions={"mine": 4}),
        beat("c", "other", weight_versions={"mine": 9}),
    )
    team = world.beats.team("mine", 1000)
    assert [one.worker for one in team.workers] == ["a", "b"]
    assert team.lag("mine", 5) == 2.0
    assert msgspec.json.decode(team.encoded) == [msgspec.json.decode(msgspec.json.encode(one)) for one in team.workers]
    assert world.beats.team("mine", 2000) is team
    world.beats.refresh()
    assert world.beats.team("mine", 2000) is not team


def test_results_are_read_again_for_each_new_one_and_not_otherwise() -> None:
    spec = MatchSpec("weights:1", "uct:100", 10, 8, 0, 1)
    [match], reads = put_together([MatchResult(spec, "weights:1", "uct:100", 8, 0, 2, 0)]), []

    def read() -> tuple[list[WholeMatch], list[Any]]:
        reads.append(1)
        return [match] * len(reads), []

    standings = Standings()
    assert standings.of("r", "1-0", read).matches == [match]
    assert standings.of("r", "1-0", read).matches == [match]
    assert len(standings.of("r", "2-0", read).matches) == 2
    assert {rating.player for rating in standings.of("r", "2-0", read).ratings} == {"weights:1", "uct:100"}
    assert len(reads) == 2
    assert dataclasses.is_dataclass(standings.of("s", "", read))


def test_a_page_of_results_cuts_no_match() -> None:
    def entry(number: int, seed: int, first: int, of: int) -> Entry:
        spec = MatchSpec("weights:1", "uct:100", 10, 8, 0, seed, first, of)
        return Entry("results", f"{number}-0", encode(MatchResult(spec, "weights:1", "uct:100", 8, 0, 2, number)))

    ones = [entry(number, number, 0, 0) for number in (9, 8)]
    parts = [entry(7, 1, 20, 30), entry(6, 2, 10, 20), entry(5, 1, 10, 30), entry(4, 1, 0, 30), entry(3, 2, 0, 20)]
    entries = [*ones, *parts, entry(2, 4, 0, 0), entry(1, 5, 10, 20)]
    assert [uncut(entries, least) for least in (1, 2, 3, 7, 8, 9)] == [1, 2, 7, 7, 8, 9]
    assert [len(split_results(entries[:end])[0]) for end in (2, 7)] == [2, 4]


def test_matches_in_parts_are_told_while_they_are_under_way() -> None:
    spec = MatchSpec("weights:1", "uct:100", 100, 8, 0, 1, sprt=(0.0, 20.0, 0.05, 0.05))
    parts = split(spec, 25)
    jobs = [view(n, kind=Kind.EVAL) for n in range(1, 5)]
    jobs = [
        dataclasses.replace(one, job=Job("", "r", Kind.EVAL, "cpu", payload=encode(part))) for one, part in zip(jobs, parts, strict=True)
    ]
    assert under_way((), jobs) == ("weights:1 - uct:100: 0 of 100",)
    matches = put_together([MatchResult(parts[0], "weights:1", "uct:100", 15, 0, 10, 1)])
    assert under_way(matches, jobs[1:]) == ("weights:1 - uct:100: 25 of 100, LLR 0.25 in [-2.94, 2.94]",)
    assert under_way(matches, [view(9, kind=Kind.EVAL), view(8)]) == ()
