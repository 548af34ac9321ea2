"""What ends the daemon and what it outlives: a control plane that is away, takes no writes or was never reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from memory_broker import MemoryBus, MemoryLedger
from redis import exceptions

from azq.config import Config, DaemonConfig
from azq.errors import AccessRefused, AzqError, BrokerUnavailable, ConfigError, SchemaMismatch, StateConflict
from azq.process.liveness import WATCHDOG
from azq.status.observe import Beats, Observer
from azq.wire.connect import open_client, translate
from daemon import main
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.act import Hands
from daemon.serve.health import Health
from daemon.serve.loop import MEND_EVERY, Loop


class Bench:
    """A loop over a control plane that answers what the test says."""

    def __init__(self) -> None:
        self.answers: Callable[[], None] = lambda: None
        self.entered = 0
        bus = MemoryBus()
        ledger = MemoryLedger(bus)
        self.loop = Loop(
            config=DaemonConfig(),
            observer=Observer(ledger, bus, Beats(bus)),
            hands=Hands(ledger, bus, lambda view, _game: None, 3),
            bus=bus,
            hold=lambda: self.answers(),
            clock_ms=lambda: 1,
            has_positions=lambda run: True,
            health=Health(),
            life_s=5.0,
            enter=self._enter,
        )
        services = Services(ledger, bus, DaemonConfig(), self.loop.health, Path("runs"), list)
        self.rest = TestClient(create_app(services), base_url="http://localhost", raise_server_exceptions=False)

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

    main._serve(Config(), bench.loop, Rest(), Stop())  # type: ignore[arg-type]
    assert said == [(WATCHDOG, "STATUS=reconciling")] * 2 + [(WATCHDOG, "STATUS=degraded: away")] * 2
