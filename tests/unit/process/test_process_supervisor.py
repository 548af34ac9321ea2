from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from azq.errors import ExitCode
from azq.process import supervisor as sup
from azq.process.liveness import READY, READY_PID, WATCHDOG, notify


@dataclass
class FakeProcess:
    pid: int
    code: int | None = None
    signals: list[int] = field(default_factory=list)
    obeys: bool = True

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, sig: int) -> None:
        self.signals.append(sig)
        if self.obeys or sig == signal.SIGKILL:
            self.code = -sig


class Bench:
    """A supervisor with a clock and processes that the test moves."""

    def __init__(self, obeys: bool = True) -> None:
        self.now = 100.0
        self.started: list[FakeProcess] = []

        def start(spec: sup.ChildSpec, env: object) -> FakeProcess:
            self.started.append(FakeProcess(pid=len(self.started) + 1, obeys=obeys))
            return self.started[-1]

        self.supervisor = sup.Supervisor(env={}, start_process=start, clock=lambda: self.now)
        self.supervisor.start(sup.ChildSpec("learner", ["x"], Path("log")))

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_a_dead_child_is_started_again_after_its_delay() -> None:
    bench = Bench()
    bench.started[0].code = -9
    assert bench.supervisor.tick() == [("learner", -9)]
    assert bench.supervisor.tick() == []
    assert len(bench.started) == 1
    bench.now += sup.BACKOFF.first_s
    bench.supervisor.tick()
    assert len(bench.started) == 2


def test_delays_double_for_a_child_that_keeps_dying() -> None:
    bench = Bench()
    waits = []
    for _ in range(9):
        bench.started[-1].code = 1
        bench.supervisor.tick()
        again = bench.supervisor.children["learner"].start_again_s
        assert again is not None
        waits.append(again - bench.now)
        bench.now = again
        bench.supervisor.tick()
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert max(waits) <= sup.BACKOFF.longest_s


def test_exit_codes_that_no_restart_mends_are_given_up() -> None:
    bench = Bench()
    bench.started[0].code = ExitCode.CONFIG
    bench.supervisor.tick()
    bench.now += 1000
    bench.supervisor.tick()
    assert len(bench.started) == 1
    assert bench.supervisor.failed() == {"learner": ExitCode.CONFIG}


def test_stop_kills_what_does_not_stop() -> None:
    bench = Bench(obeys=False)
    process = bench.started[0]
    bench.supervisor.stop(["learner"], bench.wait)
    assert process.signals[0] == signal.SIGTERM
    assert process.signals[-1] == signal.SIGKILL
    assert bench.now - 100.0 >= 15.0
    assert bench.supervisor.children == {}


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20))
def test_the_delay_is_always_bounded_and_the_first_one_again_after_a_steady_life(lives: list[float]) -> None:
    bench = Bench()
    for lived_s in lives:
        started_s = bench.now
        bench.now += lived_s
        bench.started[-1].code = 1
        bench.supervisor.tick()
        again_s = bench.supervisor.children["learner"].start_again_s
        assert again_s is not None
        assert sup.BACKOFF.first_s <= again_s - bench.now + 1e-9 <= sup.BACKOFF.longest_s + 2e-9
        if bench.now - started_s >= sup.STEADY_AFTER_S:
            assert again_s - bench.now == pytest.approx(sup.BACKOFF.first_s)
        bench.now = again_s
        bench.supervisor.tick()


def test_a_child_that_was_ready_and_fell_silent_is_killed_and_started_again() -> None:
    environments: list[dict[str, str]] = []
    clock = Bench()

    def start(spec: sup.ChildSpec, env: Mapping[str, str]) -> FakeProcess:
        environments.append(dict(env))
        clock.started.append(FakeProcess(pid=len(clock.started) + 1))
        return clock.started[-1]

    clock.started.clear()
    supervisor = sup.Supervisor(env={"A": "1"}, start_process=start, clock=lambda: clock.now, hang_after_s=10.0)
    supervisor.start(sup.ChildSpec("learner", ["x"], Path("log")))
    assert environments[0]["A"] == "1"
    clock.now += 600
    assert supervisor.tick() == []
    assert clock.started[0].signals == []  # it was not ready yet: it may take its time to start
    assert notify(WATCHDOG, environment=environments[0] | {READY_PID: str(os.getpid())})  # of a process that does not know the rule
    silent(supervisor, clock, 60.0)
    assert clock.started[0].signals == []
    assert notify(READY, environment=environments[0])
    supervisor.tick()
    silent(supervisor, clock, 60.0, excused=True)  # what it waits for hangs itself
    clock.now += 600  # this process slept
    supervisor.tick()
    silent(supervisor, clock, 7.9)
    assert clock.started[0].signals == []
    notify(WATCHDOG, environment=environments[0])
    silent(supervisor, clock, 10.0)
    assert clock.started[0].signals == []
    silent(supervisor, clock, 0.2)
    assert clock.started[0].signals == [signal.SIGKILL]
    assert supervisor.tick() == [("learner", -signal.SIGKILL)]
    assert [death.cause for death in supervisor.take_deaths()] == ["SIGKILL, no sign of life for 10 s"]
    clock.now += sup.BACKOFF.first_s
    supervisor.tick()
    assert len(clock.started) == 2
    assert environments[1]["NOTIFY_SOCKET"] != environments[0]["NOTIFY_SOCKET"]
    assert not Path(environments[0]["NOTIFY_SOCKET"]).exists()
    supervisor.stop(["learner"], clock.wait)
    assert not Path(environments[1]["NOTIFY_SOCKET"]).exists()


def silent(supervisor: sup.Supervisor, clock: Bench, seconds: float, *, excused: bool = False) -> None:
    """Looks after children that say nothing, ten times a second."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        supervisor.tick(excused=excused)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2026 [error] stopped    reason='127.0.0.1:80 is in use; stop it' role=daemon", "127.0.0.1:80 is in use; stop it"),
        ("2026 [error] stopped reason=\"device 'cuda:3' is not here\" role=inference", "device 'cuda:3' is not here"),
        ('{"event": "stopped", "reason": "no broker", "role": "worker"}', "no broker"),
        ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"),
        ("{half a line", "{half a line"),
    ],
)
def test_why_a_child_ended_is_told_without_the_rest_of_its_line(line: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"before\n{line}\n")
    assert sup.last_line(tmp_path / "log") == reason


def test_a_look_tells_once_who_was_given_up_and_why(tmp_path: Path) -> None:
    bench = Bench()
    child = bench.supervisor.children["learner"]
    child.spec = sup.ChildSpec("learner", ["x"], tmp_path / "log")
    (tmp_path / "log").write_text("a line\nstopped reason='no such run'\n")
    with capture_logs() as lines:
        assert bench.supervisor.check() == {}
        bench.started[0].code = int(ExitCode.CONFIG)
        assert bench.supervisor.check() == bench.supervisor.check() == {"learner": int(ExitCode.CONFIG)}
    assert [line["event"] for line in lines] == ["child_died", "child_given_up"]
    assert lines[1]["reason"] == "no such run"


@pytest.mark.parametrize(
    ("code", "silent_s", "cause"),
    [
        (-signal.SIGKILL, 10.0, "SIGKILL, no sign of life for 10 s"),
        (-signal.SIGKILL, None, "SIGKILL"),
        (-signal.SIGSEGV, None, "SIGSEGV"),
        (-199, None, "signal 199"),
        (1, None, "exit code 1, no room at redis://***@here"),
        (0, None, "exit code 0"),
    ],
)
def test_the_cause_of_a_death_is_told_by_name_and_without_passwords(code: int, silent_s: float | None, cause: str) -> None:
    assert sup.cause_of(code, silent_s, "no room at redis://:s3cret@here") == cause


def test_deaths_are_taken_once_and_a_good_end_is_none() -> None:
    bench = Bench()
    spec = bench.supervisor.children["learner"].spec
    for code in (-signal.SIGSEGV, 0):
        bench.started[-1].code = code
        bench.supervisor.tick()
        bench.now += 1000
        bench.supervisor.tick()
    assert bench.supervisor.take_deaths() == [sup.Death(spec, 1, "SIGSEGV")]
    assert bench.supervisor.take_deaths() == []
