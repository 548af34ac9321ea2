"""The broker's clock is set while a fleet works: it costs a job at most one more attempt."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_broker import MemoryBus, MemoryLedger
from reconcile_worlds import CONFIG, NOW, SECTIONS, beat

from azq.errors import LeaseLost
from azq.ledger.records import record_of
from azq.ledger.types import JobView, Lease, RunState
from azq.status.observe import Beats, Observer
from azq.wire import keys
from azq.wire.codec import encode
from daemon.decide.reconcile import reconcile
from daemon.serve.act import Hands, act

HOUR_MS = 3_600_000
TICKS = 120  # of half a second
LEASE_S = 20.0


class Fleet:
    """A daemon's ticks and a worker of some slots, on a ledger whose clock is set at will; no message is lost."""

    def __init__(self, slots: int, job_ticks: int) -> None:
        self.wall_ms, self.steady_s = NOW, 0.0
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus, clock_ms=lambda: self.wall_ms)
        self.ledger.create_run(record_of("r", SECTIONS, "", NOW, {}))
        self.attempts: dict[str, int] = {}
        self._queue: deque[tuple[str, int]] = deque()
        self._leases: list[tuple[Lease, int]] = []  # and ticks that are left
        self._slots, self._job_ticks = slots, job_ticks
        self.observer = Observer(self.ledger, self.bus, Beats(self.bus), lambda: self.steady_s)
        self._hands = Hands(self.ledger, self.bus, self._publish, max_attempts=9)

    def _publish(self, view: JobView, _game: str) -> None:
        self._queue.append((view.job.job_id, view.attempt))
        self.attempts[view.job.job_id] = view.attempt

    def tick(self) -> None:
        self.steady_s += 0.5
        self.wall_ms += 500
        self.bus.put(keys.beat("w"), encode(beat("w", "selfplay.cpu", slots=self._slots)), life_s=60.0)
        desired, observed = self.observer.look()
        act(reconcile(desired, observed, self.wall_ms, CONFIG, lambda _: False), self._hands)
        self._work()

    def _work(self) -> None:
        held, self._leases = self._leases, []
        for lease, left in held:
            try:
                if left:
                    self.ledger.renew(lease)
                    self._leases.append((lease, left - 1))
                else:
                    self.ledger.complete(lease, b"")
            except LeaseLost:
                pass
        while self._queue and len(self._leases) < self._slots:
            lease = self.ledger.claim(*self._queue.popleft(), "w", LEASE_S)
            if lease:
                self._leases.append((lease, self._job_ticks))


def test_time_in_which_a_daemon_saw_nothing_is_no_waiting() -> None:
    fleet = Fleet(1, 1)
    fleet.tick()
    before_ms = fleet.observer.look()[1].clock_ms
    fleet.steady_s += 60.0  # it was stopped, or its broker was away
    assert fleet.observer.look()[1].clock_ms - before_ms <= 2_000


@given(
    jump_ms=st.sampled_from((-HOUR_MS, HOUR_MS)),
    jump_at=st.integers(1, 60),
    paused=st.none() | st.tuples(st.integers(1, 60), st.integers(1, 20)),
    slots=st.integers(1, 3),
    job_ticks=st.integers(1, 100),
)
@example(jump_ms=-HOUR_MS, jump_at=3, paused=None, slots=1, job_ticks=100)
@example(jump_ms=-HOUR_MS, jump_at=30, paused=(5, 2), slots=1, job_ticks=60)
@settings(max_examples=12, deadline=None)
def test_a_clock_that_jumps_costs_a_job_one_attempt_at_most(
    jump_ms: int, jump_at: int, paused: tuple[int, int] | None, slots: int, job_ticks: int
) -> None:
    fleet = Fleet(slots, job_ticks)
    pause_at, resume_at = (paused[0], sum(paused)) if paused else (0, 0)
    for tick in range(1, TICKS):
        fleet.wall_ms += jump_ms if tick == jump_at else 0
        if tick == pause_at:
            fleet.ledger.set_run_state("r", RunState.PAUSED)
        if tick == resume_at:
            fleet.ledger.set_run_state("r", RunState.RUNNING)
        fleet.tick()
    assert fleet.attempts
    assert max(fleet.attempts.values()) <= 2 + (paused is not None)
