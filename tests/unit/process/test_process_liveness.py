"""Signs of life: what a process says of itself, to whom, and how long work may go on without a sign."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq import metrics
from azq.process import liveness
from azq.process.heartbeat import Presence
from azq.process.liveness import (
    HANG_AFTER_S,
    LATE_S,
    READY,
    READY_PID,
    STILL_S,
    TIMES,
    UNTRIED_S,
    WATCHDOG,
    WorkWatch,
    may_be_still_s,
    more_time,
    notify,
    patient,
    waits_for_brokers,
)
from azq.waiting import Waits
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import SCHEMA, Heartbeat


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's socket, which reads when the test does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        yield listening


def told(manager: socket.socket) -> dict[str, str]:
    """The environment of a process that was ready."""
    return {"NOTIFY_SOCKET": str(manager.getsockname()), READY_PID: str(os.getpid())}


def test_lines_arrive_as_one_message(manager: socket.socket) -> None:
    assert notify(READY, "STATUS=at work", environment=told(manager))
    assert manager.recv(100) == b"READY=1\nSTATUS=at work"


def test_a_full_socket_drops_messages_and_holds_nobody_up(manager: socket.socket) -> None:
    before = liveness.DROPPED.total
    refused = threading.Event()

    def fill() -> None:
        while notify(WATCHDOG, environment=told(manager)):
            pass
        refused.set()

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    assert refused.wait(PATIENCE_S), "notify waits for a reader"
    thread.join()
    assert not notify(WATCHDOG, environment=told(manager))
    assert liveness.DROPPED.total == before + 2
    manager.recv(100)
    assert notify(WATCHDOG, environment=told(manager))  # once somebody reads again, messages arrive again
    assert liveness.DROPPED.total == before + 2


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert not notify(READY, environment={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert not notify(READY, environment={})


def test_a_container_sees_it_by_the_age_of_a_file(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    environment = {"AZQ_ALIVE_FILE": str(alive)}
    assert not notify(READY, environment=environment)  # no manager heard it
    os.utime(alive, (0.0, 0.0))
    notify(WATCHDOG, environment=environment)
    assert alive.stat().st_mtime > 0.0
    assert not notify(READY, environment={"AZQ_ALIVE_FILE": str(tmp_path / "gone" / "alive")})
    assert [liveness.kept_alive(told) for told in (environment, {"NOTIFY_SOCKET": "/n"}, {})] == [True, True, False]


def test_more_time_is_asked_for_in_microseconds() -> None:
    assert more_time(1.5) == "EXTEND_TIMEOUT_USEC=1500000"


def test_who_waits_for_long_lives_for_so_long_and_no_longer(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "PATIENCE_EVERY_S", 0.01)
    for name, value in told(manager).items():
        monkeypatch.setenv(name, value)
    manager.settimeout(PATIENCE_S)
    with patient(60.0):
        assert [manager.recv(100) for _ in range(3)] == [WATCHDOG.encode()] * 3
    with patient(0.0):
        until(lambda: "patience" not in {thread.name for thread in threading.enumerate()})


def test_no_watch_begins_before_ready(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": str(manager.getsockname()), READY_PID: "1"}  # of whoever started this process
    assert notify(WATCHDOG, environment=environment)
    assert notify(WATCHDOG, "STATUS=starts", environment=environment)
    notify(READY, environment=environment)
    notify(WATCHDOG, environment=environment)
    assert [manager.recv(100) for _ in range(3)] == [b"STATUS=starts", b"READY=1", b"WATCHDOG=1"]


def test_a_wait_for_a_broker_is_life_and_other_silence_is_not(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    excused, looks = threading.Event(), [0]

    def excuse(thread: int) -> bool:
        assert thread == threading.main_thread().ident
        looks[0] += 1
        return excused.is_set()

    monkeypatch.setattr(liveness, "PATIENCE_EVERY_S", 0.01)
    monkeypatch.setattr(Waits, "excuse", lambda waits, thread: excuse(thread))
    for name, value in told(manager).items():
        monkeypatch.setenv(name, value)
    with waits_for_brokers():
        until(lambda: looks[0] > 10)
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        excused.set()
        manager.settimeout(PATIENCE_S)
        assert [manager.recv(100) for _ in range(3)] == [WATCHDOG.encode()] * 3
    monkeypatch.delenv("NOTIFY_SOCKET")
    with waits_for_brokers():
        assert "broker patience" not in {thread.name for thread in threading.enumerate()}


SLOW_S = 40.0


class Work:
    """Work, the one who looks after it each second, and their clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said = 0
        self.progress = WorkWatch(self.say, lambda: self.now_s)

    def say(self) -> None:
        self.said += 1

    def still(self, seconds: float, *, every_s: float = 1.0) -> float:
        """Nothing happens for so long; how much of that it was said to live."""
        before = self.said
        for _ in range(int(seconds / every_s)):
            self.now_s += every_s
            self.progress.check()
        return (self.said - before) * every_s


@pytest.fixture
def work() -> Work:
    return Work()


def test_patience_is_long_before_the_first_and_then_by_what_was_measured() -> None:
    assert may_be_still_s(0.0, untried=True) == UNTRIED_S
    assert may_be_still_s(0.05, untried=False) == STILL_S > HANG_AFTER_S
    assert may_be_still_s(SLOW_S, untried=False) == TIMES * SLOW_S


def test_a_hang_in_a_step_is_found(work: Work) -> None:
    for _ in range(100):
        work.now_s += 0.05
        work.progress.mark()
    assert work.still(1000) == pytest.approx(STILL_S, abs=2.0)


def test_a_first_step_may_take_long_and_a_hang_in_it_is_found_too(work: Work) -> None:
    with work.progress.does("step"):
        assert work.still(SLOW_S) == SLOW_S
        assert work.still(1000) == pytest.approx(UNTRIED_S - SLOW_S, abs=2.0)


def test_slow_steps_teach_patience_for_a_while(work: Work) -> None:
    with work.progress.does("step"):
        work.still(SLOW_S)
    work.progress.done("step")
    with work.progress.does("step"):
        assert work.still(3 * SLOW_S) == 3 * SLOW_S
    for _ in range(int(LATE_S) + 1):
        work.now_s += 1.0
        work.progress.mark()
    with work.progress.does("step"):
        assert work.still(1000) == pytest.approx(STILL_S, abs=2.0)


def test_other_work_and_work_within_work_have_their_own_first_time(work: Work) -> None:
    work.progress.done("publish")
    with work.progress.does("end"):
        with work.progress.does("publish"):
            assert not work.progress.untried
        assert work.progress.untried
    assert not work.progress.untried
    work.progress.done("publish", once=False)
    with work.progress.does("publish"):
        assert work.progress.untried


def test_marks_count_for_nothing_while_others_hang(work: Work) -> None:
    work.progress.others_get_on = lambda: False
    for _ in range(int(2 * STILL_S)):
        work.progress.mark()
        work.still(1)
    assert work.said == pytest.approx(STILL_S, abs=2.0)


def test_a_process_that_was_stopped_as_a_whole_was_not_still(work: Work) -> None:
    work.progress.mark()
    work.now_s += 3600.0
    assert work.still(STILL_S / 2) == STILL_S / 2


def test_a_heartbeat_tells_who_it_is_and_what_is_new() -> None:
    bus, presence = MemoryBus(), Presence("learner", life_s=8.0, run="first")
    presence.beat(bus, {"samples_per_s": 3.0}, weight_versions={"first": 7})
    sent = decode(bus.get(keys.beat(presence.worker)) or b"", Heartbeat)
    assert (sent.role, sent.run, sent.pid, sent.schema, sent.weight_versions) == ("learner", "first", os.getpid(), SCHEMA, {"first": 7})
    assert sent.worker == f"learner@{sent.host}:{os.getpid()}"
    assert sent.sent_ms >= sent.started_ms > 0
    assert sent.rates["samples_per_s"] == 3.0
    assert sent.rates.keys() <= {"samples_per_s", metrics.CPU_S, metrics.RESIDENT_BYTES}
    presence.leave(bus)
    assert bus.get(keys.beat(presence.worker)) is None


def test_the_first_one_is_due_at_once_and_the_next_one_later() -> None:
    presence = Presence("inference", life_s=8.0, every_s=3600.0, worker="inference@here:1")
    assert presence.worker == "inference@here:1"
    assert presence.due()
    assert not presence.due()


def test_what_is_never_late_is_always_due() -> None:
    presence = Presence("daemon", life_s=8.0)
    assert presence.due()
    assert presence.due()
