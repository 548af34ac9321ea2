"""Games that kill their workers are found, innocent ones are not: whole fleets played through with the rules alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.ledger import rules
from azq.ledger.rules.strikes import COMPANY, REASON, SET_ASIDE, company
from azq.ledger.types import JobState, Lease
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord

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

    def __init__(self, *, slots: int, games: int, lethal: set[int], kill_rate: float, seed: int) -> None:
        self.state = rules.state.State(RunRecord("r", b"", {}, "", 1), 0)
        self.slots = [Slot() for _ in range(slots)]
        self.games, self.lethal, self.kill_rate, self.rng = games, lethal, kill_rate, Random(seed)
        self.now = self.deaths = self.most_alone = 0
        self.failed: list[bool] = []  # of ended jobs, oldest first

    def step(self) -> None:
        self.now += STEP_MS
        for slot in self.slots:
            if slot.lease is None:
                self.start(slot)
            if slot.lease is not None:
                self.play(slot)

    def start(self, slot: Slot) -> None:
        waiting = [number for _, number in self.state.queue if self.state.jobs[number].view.state is JobState.QUEUED]
        if not waiting:
            self.state, view = rules.jobs.enqueue(self.state, self.now, Job("", "r", Kind.SELFPLAY, "cpu"))
            waiting = [rules.state.number_of(Lease(view.job, 1, "", 0))]
        view = self.state.jobs[waiting[0]].view
        self.state, slot.lease = rules.jobs.claim(self.state, self.now, waiting[0], view.attempt, "w", 60.0)
        slot.games, slot.step, slot.journal_in, slot.next_journal = set(), 0, 1, 1
        self.adopt(slot)

    def adopt(self, slot: Slot) -> None:
        self.state, records = rules.games.adopt(self.state, slot.lease, self.games - len(slot.games))
        slot.games |= {record.uid for record in records}

    def play(self, slot: Slot) -> None:
        slot.step += 1
        if slot.games & self.lethal or self.rng.random() < self.kill_rate:
            self.deaths += 1
            number = rules.state.number_of(slot.lease)
            self.state = rules.jobs.fail(self.state, self.now, slot.lease, "died", 4)
            self.note(number)
            slot.lease = None
            return
        if slot.step >= slot.next_journal:
            slot.journal_in = min(2 * slot.journal_in, JOURNAL_STEPS)
            slot.next_journal = slot.step + slot.journal_in
            self.state = rules.games.journal(self.state, slot.lease, [GameRecord(uid) for uid in slot.games])
        if len(slot.games) < self.games and slot.step % 2 == 0:
            self.adopt(slot)
        if slot.step >= SLICE_STEPS:
            number = rules.state.number_of(slot.lease)
            ended = [uid for uid in sorted(slot.games) if self.rng.random() < ENDED]
            self.state = rules.games.finish_games(self.state, slot.lease, ended)
            self.state = rules.games.release(self.state, self.now, slot.lease, [])
            self.note(number)
            slot.lease = None

    def note(self, number: int) -> None:
        row = self.state.jobs.get(number)
        if row is not None and row.view.state in (JobState.DONE, JobState.FAILED):
            self.failed.append(row.view.state is JobState.FAILED)

    def run_failed(self, in_a_row: int = 5) -> bool:
        return any(all(self.failed[start : start + in_a_row]) for start in range(len(self.failed) - in_a_row + 1))

    def check(self) -> None:
        held = [uid for row in self.state.jobs.values() for uid in row.held]
        assert sorted([*held, *self.state.pool]) == sorted(self.state.open)
        assert self.state.opened == self.state.finished + len(self.state.open) + len(self.state.abandoned)


@settings(max_examples=25, deadline=None)
@given(
    slots=st.integers(1, 4),
    games=st.sampled_from([1, 3, 8, 64, 200]),
    lethal=st.sets(st.integers(1, 100), min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
def test_any_lethal_games_are_found_and_no_others(slots, games, lethal, seed):
    fleet = Fleet(slots=slots, games=games, lethal=lethal, kill_rate=0.0, seed=seed)
    for _ in range(40_000):  # one slot that plays one game at a time comes to the hundredth after 8,000, as a rule
        fleet.step()
        fleet.check()
        if set(fleet.state.abandoned) == lethal:
            break
    assert set(fleet.state.abandoned) == lethal
    assert set(fleet.state.abandoned.values()) == {REASON}
    assert fleet.deaths <= SET_ASIDE * len(lethal), "each costs seven workers at most"
    assert not fleet.run_failed(), "and never the run"


@pytest.mark.parametrize(("slots", "games", "mean_life_s"), [(1, 64, 15.0), (4, 64, 15.0), (4, 8, 15.0), (2, 1, 15.0), (4, 300, 30.0)])
def test_innocent_games_survive_workers_that_are_killed_again_and_again(slots, games, mean_life_s):
    for seed in range(3):
        fleet = Fleet(slots=slots, games=games, lethal=set(), kill_rate=STEP_MS / 1000 / mean_life_s, seed=seed)
        for _ in range(2000):
            fleet.step()
        assert fleet.deaths > 20
        assert not fleet.state.abandoned
        fleet.check()


def test_a_lethal_game_is_found_among_workers_that_are_killed_again_and_again():
    fleet = Fleet(slots=4, games=100, lethal={37}, kill_rate=STEP_MS / 1000 / 20.0, seed=1)
    for _ in range(2000):
        fleet.step()
    assert set(fleet.state.abandoned) == {37}


def test_where_everything_dies_no_game_is_found_guilty_and_the_jobs_fail():
    fleet = Fleet(slots=2, games=10, lethal=set(range(1, 100_000)), kill_rate=0.0, seed=1)
    for _ in range(100):
        fleet.step()
    assert not fleet.state.abandoned
    assert fleet.run_failed()


def test_one_death_changes_nothing_for_the_games_of_the_dead():
    fleet = Fleet(slots=1, games=100, lethal=set(), kill_rate=0.0, seed=1)
    fleet.step()
    (slot,) = fleet.slots
    fleet.state = rules.jobs.fail(fleet.state, fleet.now, slot.lease, "died", 4)
    slot.lease = None
    fleet.step()
    assert slot.games == set(range(1, 101))


def test_a_game_that_moved_is_free_of_suspicion():
    fleet = Fleet(slots=1, games=3, lethal=set(), kill_rate=0.0, seed=1)
    (slot,) = fleet.slots
    for _ in range(2):
        fleet.start(slot)
        fleet.state = rules.jobs.fail(fleet.state, 0, slot.lease, "died", 9)
    assert dict(fleet.state.strikes) == {1: 2, 2: 2, 3: 2}
    fleet.start(slot)
    assert slot.games == {4, 5, 6}, "suspects wait until the run is sound"
    fleet.state = rules.games.journal(fleet.state, slot.lease, [GameRecord(5)])
    fleet.state = rules.games.release(fleet.state, 0, slot.lease, [])
    fleet.start(slot)
    assert slot.games == {1, 2, 3}
    assert rules.games.adopt(fleet.state, slot.lease, 5)[1] == [], "nobody joins suspects"
    fleet.state = rules.games.journal(fleet.state, slot.lease, [GameRecord(uid) for uid in (1, 2, 3)])
    assert not fleet.state.strikes
    assert [record.uid for record in rules.games.adopt(fleet.state, slot.lease, 2)[1]] == [4, 5]


def test_company_shrinks_to_one():
    assert [company(strikes) for strikes in (2, 3, 4, 5, 6)] == [*COMPANY.values(), 1, 1, 1]
