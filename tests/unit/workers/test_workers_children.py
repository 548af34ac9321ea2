"""Pool children that die or hang, as the main process sees them on the board."""

from __future__ import annotations

import os
import signal

import pytest
from memory_broker import MemoryBus, MemoryLedger

from azq.errors import BrokerUnavailable, LeaseLost
from azq.ledger.types import JobState, Lease
from azq.process.liveness import HANG_AFTER_S
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord
from workers.children import STUCK_AFTER_S, Board, ChildHeartbeat, Claim, PoolWatchdog, gone, heard, hung, owner_of

CLAIM = Claim(41, "r:1", 1)
WAITS = Claim(41, "", 0)


def test_the_board_tells_who_holds_which_job() -> None:
    board = Board(2)
    assert board.claims() == {}
    board.claim(1, Claim(7, "some-run:12", 3))
    assert board.claims()[1][0] == Claim(7, "some-run:12", 3)
    board.claim(1, Claim(7, "", 0))
    assert board.claims()[1][0] == Claim(7, "", 0)


@pytest.mark.parametrize(("silent_s", "alive", "twice", "expected"), [
    (HANG_AFTER_S + 1, True, True, {CLAIM}),
    (HANG_AFTER_S + 1, True, False, set()),
    (HANG_AFTER_S + 1, False, True, set()),
    (HANG_AFTER_S - 1, True, True, set()),
])  # fmt: skip
def test_a_child_hangs_when_it_is_there_and_says_nothing_new(silent_s: float, alive: bool, twice: bool, expected: set[Claim]) -> None:
    before = heard({}, {0: (CLAIM, 7.0)}, 100.0)
    now_s = 100.0 + silent_s
    assert hung(heard(before, {0: (CLAIM, 7.0 if twice else 8.0)}, now_s), lambda pid: alive, now_s) == expected


def test_the_board_keeps_the_job_of_a_child_whose_place_another_took() -> None:
    board = Board(1)
    for claim in (WAITS, CLAIM, CLAIM, Claim(42, "", 0), Claim(42, "", 0)):
        board.claim(0, claim)
    assert (board.claims()[0][0], board.left()) == (Claim(42, "", 0), {CLAIM})
    board.claim(0, Claim(43, "r:2", 1))  # the one before held nothing
    assert board.left() == {CLAIM}
    board.claim(0, Claim(44, "", 0))
    assert board.left() == {Claim(43, "r:2", 1)}


def test_a_claim_is_gone_with_its_process() -> None:
    other = Claim(42, "r:2", 1)
    assert gone({CLAIM, other}, lambda pid: pid == 42) == {CLAIM}
    assert gone({CLAIM}, lambda pid: True) == set()
    assert gone({WAITS, other}, lambda pid: pid == 42) == set()


class Ward:
    """A ledger with one leased job, a board, and children that the test lets die."""

    def __init__(self) -> None:
        self.now = 50.0
        self.living = {CLAIM.pid}
        self.killed: list[int] = []
        self.away = 0
        self.board = Board(1)
        self.ledger = MemoryLedger(MemoryBus())
        self.ledger.create_run(RunRecord("r", b"{}", {}, "", 0))
        job = self.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu", games=4)).job
        lease = self.ledger.claim(job.job_id, 1, owner_of(CLAIM.pid), 60.0)
        assert lease is not None
        self.lease: Lease = lease
        self.ledger.adopt(lease, 2)
        self.watchdog = PoolWatchdog(self.board, self._open, is_child=self.living.__contains__, kill=self._kill, clock=lambda: self.now)

    def _open(self) -> MemoryLedger:
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("away")
        return self.ledger

    def _kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        self.killed.append(pid)
        self.living.discard(pid)


def test_a_dead_childs_lease_ends_at_once_and_its_games_go_to_the_pool() -> None:
    ward = Ward()
    ward.board.claim(0, CLAIM)
    ward.watchdog.check()
    assert ward.ledger.job("r:1").state is JobState.LEASED
    ward.living.clear()
    ward.away = 1
    ward.watchdog.check()  # the broker is away: it is owed
    ward.watchdog.check()
    view = ward.ledger.job("r:1")
    assert (view.state, view.attempt) == (JobState.QUEUED, 2)
    assert "died" in view.error
    with pytest.raises(LeaseLost):
        ward.ledger.renew(ward.lease)
    again = ward.ledger.claim("r:1", 2, "other", 60.0)
    assert again is not None
    assert [record.uid for record in ward.ledger.adopt(again, 2)] == [1, 2]
    ward.watchdog.check()
    assert ward.ledger.job("r:1").owner == "other"


def test_a_child_that_lives_for_less_than_a_look_is_noticed_too() -> None:
    ward = Ward()
    ward.board.claim(0, CLAIM)
    ward.living.symmetric_difference_update({CLAIM.pid, 42})
    ward.board.claim(0, Claim(42, "", 0))  # the next one is there already
    ward.watchdog.check()
    assert ward.ledger.job("r:1").attempt == 2


def test_a_job_that_ended_well_is_left_alone_when_its_child_ends() -> None:
    ward = Ward()
    ward.board.claim(0, CLAIM)
    ward.watchdog.check()
    ward.ledger.release(ward.lease, [])
    ward.board.claim(0, WAITS)
    ward.living.clear()
    ward.watchdog.check()
    assert ward.ledger.job("r:1").state is JobState.DONE


@pytest.mark.parametrize(("claim", "attempt"), [(CLAIM, 2), (WAITS, 1)])
def test_a_silent_child_is_killed_also_where_it_only_waits(claim: Claim, attempt: int) -> None:
    ward = Ward()
    ward.board.claim(0, claim)
    ward.watchdog.check()
    ward.now += 3600.0  # the main process slept as long
    ward.watchdog.check()
    for _ in range(int(HANG_AFTER_S) - 2):
        assert ward.killed == []
        ward.now += 1.0
        ward.watchdog.check()
    ward.now += 1.0
    ward.watchdog.check()
    assert ward.killed == [CLAIM.pid]
    ward.watchdog.check()
    assert ward.killed == [CLAIM.pid]
    assert ward.ledger.job("r:1").attempt == attempt


def test_signs_of_life_of_a_job_end_when_the_main_thread_asks_for_nothing() -> None:
    board, now = Board(1), [10.0]
    heartbeat = ChildHeartbeat(board, 0, clock=lambda: now[0])

    def said(claim: Claim) -> float:
        found, said_s = board.claims()[0]
        assert found == claim
        return said_s

    waits, works = Claim(os.getpid(), "", 0), Claim(os.getpid(), "r:1", 3)
    first = said(waits)
    now[0] += STUCK_AFTER_S + 1
    heartbeat.repeat()  # nobody has to ask while there is nothing to do
    assert said(waits) > first
    heartbeat.hold("r:1", 3)
    first = said(works)
    heartbeat.repeat()
    assert (second := said(works)) > first
    now[0] += STUCK_AFTER_S + 1
    heartbeat.repeat()
    assert said(works) == second
    heartbeat.progressed()
    heartbeat.repeat()
    assert said(works) > second
    heartbeat.hold("")
    assert said(waits) > second
