"""What a process tells its service manager, and what it does when that one listens to nothing."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from azq.process import liveness
from azq.process.liveness import READY, READY_PID, WATCHDOG, more_time, notify, patient, waits_for_brokers
from azq.waiting import Waits


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
    assert refused.wait(20.0), "notify waits for a reader"
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
    manager.settimeout(20.0)
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
        manager.settimeout(20.0)
        assert [manager.recv(100) for _ in range(3)] == [WATCHDOG.encode()] * 3
    monkeypatch.delenv("NOTIFY_SOCKET")
    with waits_for_brokers():
        assert "broker patience" not in {thread.name for thread in threading.enumerate()}
