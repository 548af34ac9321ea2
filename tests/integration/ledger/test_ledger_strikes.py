"""Games that kill their workers are found, innocent ones are not: whole fleets played through."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_worlds import World, event

from azq.ledger.types import COMPANY, SET_ASIDE, SET_ASIDE_REASON, SUSPECT, JobState, Lease
from azq.wire import keys
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job

STEP_MS = 500  # the shortest time between two journal writes
JOURNAL_STEPS = 10  # the longest; from one to the next it doubles
SLICE_STEPS = 40
ENDED = 0.5  # of the games that were moved for a slice


@dataclass
class Slot:
    """One worker child: its lease, and how far its slice is."""

    lease: Lease | None = None
    games: set[int] = field(default_factory=set)
    step: int = 0
    journal_in: int = 1
    next_journal: int = 1


class Fleet:
    """Some slots that play one run, in steps of half a second. Lethal games kill whoever tries to move them."""

    def __init__(self, *, slots: int, games: int, lethal: set[int] | range = range(0), kill_rate: float = 0.0, seed: int = 1) -> None:
        self.world = World()
        self.ledger = self.world.ledger
        self.slots = [Slot() for _ in range(slots)]
        self.games, self.lethal, self.kill_rate, self.rng = games, lethal, kill_rate, Random(seed)
        self.deaths = 0
        self.failed: list[bool] = []  # of ended jobs, oldest first

    def step(self) -> None:
        self.world.pass_s(STEP_MS / 1000)
        for slot in self.slots:
            if slot.lease is None:
                self.start(slot)
            self.play(slot)

    def start(self, slot: Slot) -> None:
        waiting = [view for view in self.ledger.jobs("r") if view.state is JobState.QUEUED]
        view = waiting[0] if waiting else self.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
        slot.lease = self.ledger.claim(view.job.job_id, view.attempt, "w", 60.0)
        slot.games, slot.step, slot.journal_in, slot.next_journal = set(), 0, 1, 1
        self.adopt(slot)

    def adopt(self, slot: Slot) -> None:
        slot.games |= {record.uid for record in self.ledger.adopt(slot.lease, self.games - len(slot.games))}

    def die(self, slot: Slot, max_attempts: int = 4) -> None:
        self.deaths += 1
        self.ledger.fail(slot.lease, "died", max_attempts=max_attempts)
        if self.ledger.job(slot.lease.job.job_id).state is JobState.FAILED:
            self.failed.append(True)
        slot.lease = None

    def journal(self, slot: Slot, uids: set[int]) -> None:
        self.ledger.journal(slot.lease, [GameRecord(uid) for uid in uids])

    def play(self, slot: Slot) -> None:
        slot.step += 1
        if not slot.games.isdisjoint(self.lethal) or self.rng.random() < self.kill_rate:
            self.die(slot)
            return
        if slot.step >= slot.next_journal:
            slot.journal_in = min(2 * slot.journal_in, JOURNAL_STEPS)
            slot.next_journal = slot.step + slot.journal_in
            self.journal(slot, slot.games)
        if len(slot.games) < self.games and slot.step % 2 == 0:
            self.adopt(slot)
        if slot.step >= SLICE_STEPS:
            self.ledger.replace_games(slot.lease, [event(uid) for uid in sorted(slot.games) if self.rng.random() < ENDED], 0)
            self.ledger.release(slot.lease, [])
            self.failed.append(False)
            slot.lease = None

    def run_failed(self, in_a_row: int = 5) -> bool:
        return any(all(self.failed[start : start + in_a_row]) for start in range(len(self.failed) - in_a_row + 1))

    @property
    def abandoned(self) -> dict[int, str]:
        return self.ledger.abandoned("r")

    def strikes(self) -> dict[int, int]:
        return {int(uid): int(strikes) for uid, strikes in self.ledger.client.hgetall(keys.strikes("r")).items()}


@settings(max_examples=8, deadline=None)
@given(
    slots=st.integers(1, 4),
    games=st.sampled_from([3, 8, 64, 200]),
    lethal=st.sets(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
def test_any_lethal_games_are_found_and_no_others(slots, games, lethal, seed):
    fleet = Fleet(slots=slots, games=games, lethal=lethal, seed=seed)
    for _ in range(8000):  # one slot that plays three games at a time comes to the fortieth after 1,000, as a rule
        fleet.step()
        if set(fleet.abandoned) == lethal:
            break
    assert fleet.abandoned == dict.fromkeys(lethal, SET_ASIDE_REASON)
    assert fleet.deaths <= SET_ASIDE * len(lethal), "each costs seven workers at most"
    assert not fleet.run_failed(), "and never the run"
    assert fleet.ledger.counts("r").balanced


@pytest.mark.parametrize(("slots", "games", "mean_life_s"), [(1, 64, 15.0), (4, 8, 15.0), (2, 1, 15.0), (4, 300, 30.0)])
def test_innocent_games_survive_workers_that_are_killed_again_and_again(slots, games, mean_life_s):
    fleet = Fleet(slots=slots, games=games, kill_rate=STEP_MS / 1000 / mean_life_s)
    while fleet.deaths < 40:
        fleet.step()
    assert not fleet.abandoned


def test_a_lethal_game_is_found_among_workers_that_are_killed_again_and_again():
    fleet = Fleet(slots=4, games=100, lethal={37}, kill_rate=STEP_MS / 1000 / 20.0)
    for _ in range(1000):
        fleet.step()
    assert set(fleet.abandoned) == {37}
    told = [about for kind, about in fleet.world.heard() if kind == "game.set_aside"]
    assert told == [{"game": "37", "reason": SET_ASIDE_REASON}]


def test_where_everything_dies_no_game_is_found_guilty_and_the_jobs_fail():
    fleet = Fleet(slots=2, games=10, lethal=range(1, 100_000))
    for _ in range(100):
        fleet.step()
    assert not fleet.abandoned
    assert fleet.run_failed()


def test_one_death_changes_nothing_for_the_games_of_the_dead():
    fleet = Fleet(slots=1, games=100)
    fleet.step()
    (slot,) = fleet.slots
    fleet.die(slot)
    fleet.step()
    assert slot.games == set(range(1, 101))


def test_a_game_that_moved_is_free_of_suspicion():
    fleet = Fleet(slots=1, games=3)
    (slot,) = fleet.slots
    for _ in range(2):
        fleet.start(slot)
        fleet.die(slot, 9)
    assert fleet.strikes() == {1: 2, 2: 2, 3: 2}
    fleet.start(slot)
    assert slot.games == {4, 5, 6}, "suspects wait until the run is sound"
    fleet.journal(slot, {5})
    fleet.ledger.release(slot.lease, [])
    fleet.start(slot)
    assert slot.games == {1, 2, 3}
    assert fleet.ledger.adopt(slot.lease, 5) == [], "nobody joins suspects"
    fleet.journal(slot, {1, 2, 3})
    assert not fleet.strikes()
    assert [record.uid for record in fleet.ledger.adopt(slot.lease, 2)] == [4, 5]


def test_suspects_that_did_not_move_go_to_the_back_of_the_pool():
    world = World()
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    world.ledger.client.hset(keys.strikes("r"), "1", str(SUSPECT))
    world.ledger.release(lease, [])
    assert world.ledger.client.lrange(keys.pool("r"), 0, -1) == [b"2", b"1"]


def test_suspects_are_played_in_ever_smaller_company():
    """Games of so many strikes that none moved, taken up by one lease after the other of a run that is sound."""
    fleet = Fleet(slots=1, games=100)
    (slot,) = fleet.slots
    for _ in range(2):
        fleet.start(slot)
        fleet.die(slot, 9)
    for strikes in range(2, SET_ASIDE):
        fleet.ledger.client.hset(keys.ledger("r"), "sound", "1")
        fleet.start(slot)
        assert len(slot.games) == COMPANY.get(strikes, 1)
        assert {fleet.strikes()[uid] for uid in slot.games} == {strikes}
        fleet.die(slot, 99)
