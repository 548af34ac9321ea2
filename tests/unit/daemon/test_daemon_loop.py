"""One look after the other: what fails, what a clock that jumps changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_broker import MemoryBus, MemoryLedger
from reconcile_worlds import CONFIG, NOW, SECTIONS, beat
from redis import exceptions
from rest_site import RestSite

from azq.errors import AccessRefused, AzqError, BrokerUnavailable, ConfigError, LeaseLost, SchemaMismatch, StateConflict
from azq.ledger.records import record_of
from azq.ledger.types import JobView, Lease, RunState
from azq.process.liveness import WATCHDOG
from azq.status.observe import Beats, Observer
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import open_client, translate
from daemon import main
from daemon.decide.reconcile import reconcile
from daemon.serve.act import Hands, act
from daemon.serve.loop import MEND_EVERY, Loop


class Bench:
    """A loop over a control plane that answers what the test says."""

    def __init__(self) -> None:
        self.answers: Callable[[], None] = lambda: None
        self.entered = 0
        site = RestSite()
        self.rest = site.http
        self.loop = Loop(
            config=site.config,
            observer=Observer(site.ledger, site.bus, Beats(site.bus)),
            hands=Hands(site.ledger, site.bus, lambda view, _game: None),
            bus=site.bus,
            hold=lambda: self.answers(),
            clock_ms=lambda: 1,
            has_positions=lambda run: True,
            health=site.health,
            life_s=5.0,
            enter=self._enter,
        )

    def _enter(self) -> None:
        self.answers()
        self.entered += 1

    def fails(self, error: Exception) -> None:
        """From now on commands fail so."""

        def fail() -> None:
            with translate(open_client("redis://plane:1/0")):
                raise error

        self.answers = fail

    def works(self) -> None:
        self.answers = lambda: None


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (exceptions.ConnectionError("Connection refused"), "no broker at redis://plane:1/0 (Connection refused)"),
        (exceptions.TimeoutError(), "did not answer in time"),
        (exceptions.BusyLoadingError("LOADING"), "still loading"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "takes no writes"),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"), "out of memory"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "No space left on device"),
    ],
)
def test_the_daemon_answers_as_long_as_its_plane_takes_nothing(answer: Exception, reason: str, was_there: bool) -> None:
    bench = Bench()
    if was_there:
        assert bench.loop.tick()
    bench.fails(answer)
    for _ in range(120):
        assert not bench.loop.tick()
        answered = bench.rest.get("/readyz")
        assert (answered.status_code, answered.headers["content-type"]) == (503, "application/problem+json")
        assert reason in answered.json()["detail"]
        assert reason in bench.loop.health.status
    assert bench.rest.get("/healthz").status_code == 200
    bench.works()
    assert bench.loop.tick()
    assert bench.rest.get("/readyz").status_code == 200
    assert bench.entered == 1


@pytest.mark.parametrize("error", [AccessRefused("wrong password"), SchemaMismatch("another schema"), ConfigError("it evicts")])
def test_what_waiting_does_not_mend_ends_a_start_and_no_daemon_that_works(error: AzqError) -> None:
    bench = Bench()
    bench.fails(exceptions.ConnectionError("away"))
    assert not bench.loop.tick()

    def refuse() -> None:
        raise error

    bench.answers = refuse
    with pytest.raises(type(error)):
        bench.loop.tick()
    bench.works()
    assert bench.loop.tick()
    bench.answers = refuse
    assert not bench.loop.tick()


def test_ledgers_are_mended_every_few_ticks_and_all_of_them_after_a_tick_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked = Bench(), list[object]()
    monkeypatch.setattr(MemoryLedger, "mend", lambda _self, names=None: asked.append(names) or {})
    for _ in range(2 * MEND_EVERY):
        assert bench.loop.tick()
    assert asked == [[], []], "those that run: none"
    bench.fails(exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"))
    assert not bench.loop.tick()
    assert "mends such a key within seconds" in bench.loop.health.pulse.error
    bench.works()
    assert bench.loop.tick()
    assert asked[2:] == [None]


def test_a_daemon_that_another_one_followed_while_its_plane_was_away_ends() -> None:
    bench = Bench()
    assert bench.loop.tick()
    bench.fails(exceptions.ConnectionError("away"))
    assert not bench.loop.tick()

    def lost() -> None:
        raise StateConflict("another daemon serves this control plane")

    bench.answers = lost
    with pytest.raises(StateConflict):
        bench.loop.tick()


def test_a_tick_that_ended_is_life_however_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, said = Bench(), list[tuple[str, ...]]()
    monkeypatch.setattr(main, "notify", lambda *lines: said.append(lines))

    def ticks(_seconds: float) -> bool:
        if len(said) == 2:
            bench.fails(BrokerUnavailable("away"))
        return len(said) == 4

    class Rest:
        alive = True

    class Stop:
        last = None
        wait = staticmethod(ticks)

    main._serve(bench.loop, Rest(), Stop())  # type: ignore[arg-type]
    assert said == [(WATCHDOG, "STATUS=reconciling")] * 2 + [(WATCHDOG, "STATUS=degraded: away")] * 2


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
        self._hands = Hands(self.ledger, self.bus, self._publish)

    def _publish(self, view: JobView, _game: str) -> None:
        self._queue.append((view.job.job_id, view.attempt))
        self.attempts[view.job.job_id] = view.attempt

    def tick(self) -> None:
        self.steady_s += 0.5
        self.wall_ms += 500
        self.bus.put(keys.beat("w"), encode(beat("w", "selfplay.cpu", slots=self._slots)), life_s=60.0)
        desired, observed = self.observer.observe()
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
    before_ms = fleet.observer.observe()[1].clock_ms
    fleet.steady_s += 60.0  # it was stopped, or its broker was away
    assert fleet.observer.observe()[1].clock_ms - before_ms <= 2_000


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
