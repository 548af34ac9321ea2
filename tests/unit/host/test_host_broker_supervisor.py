"""What the keeper of a machine tells of deaths among its children."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_broker import MemoryBus
from structlog.testing import capture_logs

from azq.errors import BrokerUnavailable
from azq.host.broker_supervisor import RETRY_S, BrokerSupervisor, DeathReporter
from azq.process.supervisor import ChildSpec, Death, Supervisor
from azq.status.conditions import crash_loops, read_deaths

LEARNER = Death(ChildSpec("learner", ["x"], Path("/logs/learner.log"), run="first"), 7, "SIGSEGV")


def test_every_death_is_told_and_a_crash_loop_is_an_error_once() -> None:
    bus, notes = MemoryBus(), DeathReporter()
    with capture_logs() as lines:
        for _ in range(4):
            notes.add([LEARNER], 1_000)
            notes.send(bus, 0.0)
    (loop,) = crash_loops(deaths := read_deaths(bus), deaths[-1].at_ms, "first")
    assert (loop.times, loop.cause, loop.log) == (4, "SIGSEGV", "/logs/learner.log")
    assert [line["event"] for line in lines] == ["crash_loop"]


def test_what_could_not_be_told_is_told_once_the_control_plane_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, notes = MemoryBus(), DeathReporter()
    notes.add([LEARNER, LEARNER], 1_000)
    asked = []
    with monkeypatch.context() as patched:

        def away(*_: object, **__: object) -> str:
            asked.append(1)
            raise BrokerUnavailable("away")

        patched.setattr(MemoryBus, "publish", away)
        notes.send(bus, 0.0)
        notes.send(bus, RETRY_S / 2)  # not each tick: a broker that hangs takes its time
    assert asked == [1]
    notes.send(bus, RETRY_S)
    notes.send(bus, 2 * RETRY_S)
    assert len(read_deaths(bus)) == 2


class DyingBrokers:
    """Of which one is found dead at each look."""

    def end_hung(self, _hang_after_s: float, _now_s: float) -> tuple[str, ...]:
        return ()

    def revive(self) -> list[Death]:
        return [Death(ChildSpec("broker-control", (), Path("/home/.broker/control/server.log")), 7, "SIGABRT")]

    def silent(self, _now_s: float) -> bool:
        return True


def test_a_broker_that_dies_again_and_again_is_a_crash_loop() -> None:
    keeper = BrokerSupervisor(DyingBrokers())  # type: ignore[arg-type]
    with capture_logs() as lines:
        for _ in range(3):
            keeper.revive(Supervisor())
    (loop,) = [line["reason"] for line in lines if line["event"] == "crash_loop"]
    assert loop.startswith("broker-control died 3 times in ")
    assert ": SIGABRT; log " in loop
    bus = MemoryBus()
    keeper.deaths.send(bus, 0.0)
    assert len(read_deaths(bus)) == 3, "told once the control plane is back"
