"""The embedded server's life, and what clients hear when a broker is not as it should be."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from waiting import PATIENCE_S, until

from azq.bus import embedded
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.bus.server_program import find_server, server_at, writer_of
from azq.config import load
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError, StateConflict
from azq.files import locked
from azq.host.brokers import Brokers
from azq.process.proc import alive
from azq.wire.connect import address, connect, open_client


@pytest.fixture
def server(tmp_path):
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    yield server
    server.stop()


def test_it_starts_answers_and_stops(tmp_path):
    server = EmbeddedServer("data", tmp_path / "data")
    assert server.known_url() is None
    with pytest.raises(BrokerUnavailable, match="azq up"):
        _ = server.url
    assert server.start() is False
    pid = server.pid
    assert RedisBus(connect(server.url)).ping() < 5
    server.stop()
    assert not alive(pid)
    assert server.known_url() is not None


def test_secrets_are_readable_by_the_owner_only_and_the_program_is_noted(server, tmp_path):
    for name in ("password", "server.conf"):
        assert (tmp_path / "control" / name).stat().st_mode & 0o777 == 0o600
    password = (tmp_path / "control" / "password").read_text()
    assert password not in " ".join(psutil.Process(server.pid).cmdline())
    assert password not in address(server.url)
    assert writer_of(tmp_path / "control") == server_at(find_server())


def test_a_file_that_cannot_be_read_is_not_sent_to_be_repaired(server, tmp_path):
    server.stop()
    (base,) = (tmp_path / "control").glob("appendonlydir/*.base.*")
    base.write_bytes(b"REDIS0009 that was cut")
    with pytest.raises(StateConflict, match=r"cannot read the append-only file.*Do not repair it.*from the run's own folder") as caught:
        server.start()
    assert "--fix" not in str(caught.value)


@pytest.mark.parametrize("half", [b"", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nbegun"], ids=["whole", "cut in a command"])
def test_zeros_that_a_power_cut_left_are_cut_and_it_goes_on(server, tmp_path, half):
    with connect(server.url) as client:
        client.set("kept", "here")
    server.stop()
    (appended,) = (tmp_path / "control").glob("appendonlydir/*.incr.*")
    damaged = appended.read_bytes() + half + bytes(4096)
    appended.write_bytes(damaged)
    server.start()
    with connect(server.url) as client:
        assert client.get("kept") == b"here"
        assert client.get("k") is None
    (copy,) = (tmp_path / "control").glob("*before-cut")
    assert copy.read_bytes() == damaged


def test_what_is_no_zero_is_not_cut(server, tmp_path):
    server.stop()
    (appended,) = (tmp_path / "control").glob("appendonlydir/*.incr.*")
    damaged = appended.read_bytes() + bytes(512) + b"\x7f" * 512
    appended.write_bytes(damaged)
    with pytest.raises(StateConflict, match="cannot read the append-only file"):
        server.start()
    assert appended.read_bytes() == damaged


def test_one_that_cannot_be_asked_is_neither_adopted_nor_started_twice(server, tmp_path):
    with connect(server.url) as owner:
        owner.config_set("maxclients", 1)
        second = EmbeddedServer("control", tmp_path / "control")
        with pytest.raises(BrokerUnavailable, match=r"turned the connection away.*maxclients"):
            second.start()
        assert second.responds(2.0)


def test_a_running_one_is_adopted_and_left_running(server, tmp_path):
    second = EmbeddedServer("control", tmp_path / "control")
    assert second.start() is True
    assert second.pid == server.pid
    second.stop()
    assert connect(second.url).ping()


def test_two_starters_at_once_share_one_server(tmp_path):
    servers = [EmbeddedServer("control", tmp_path / "control") for _ in range(4)]
    adopted: list[bool] = []
    threads = [threading.Thread(target=lambda server=server: adopted.append(server.start())) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    try:
        assert sorted(adopted) == [False, True, True, True]
        assert len({server.pid for server in servers}) == 1
    finally:
        for server in servers:
            server.stop()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_control_plane_keeps_its_data_and_password(tmp_path, end):
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    url, pid = server.url, server.pid
    bus = RedisBus(connect(url))
    for number in range(100):
        bus.publish("s", bytes([number]))
    # While the disk is slow the server puts writes off for up to two seconds, and a kill loses those.
    connect(url, timeout_s=30.0).execute_command("WAITAOF", 1, 0, 20_000)
    os.kill(pid, end)
    until(lambda: not alive(pid))
    server.stop()
    again = EmbeddedServer("control", tmp_path / "control")
    try:
        assert again.start() is False
        assert again.url == url
        assert bus.length("s") == 100  # the old client connects anew by itself
    finally:
        again.stop()


def test_the_data_plane_forgets_and_readers_go_on(tmp_path):
    server = EmbeddedServer("data", tmp_path / "data")
    server.start()
    bus = RedisBus(connect(server.url))
    bus.publish("s", b"1")
    bus.read(["s"], "g", "c", count=1, block_ms=0)
    server.stop()
    with pytest.raises(BrokerUnavailable, match="no broker at unix://"):
        bus.read(["s"], "g", "c", count=1, block_ms=0)
    server.start()
    try:
        bus.publish("s", b"2")
        assert [entry.frame for entry in bus.read(["s"], "g", "c", count=9, block_ms=0)] == [b"2"]
    finally:
        server.stop()


def test_it_ends_with_its_parent(tmp_path):
    script = (
        "import sys, pathlib; from azq.bus.embedded import EmbeddedServer; "
        "s = EmbeddedServer('control', pathlib.Path(sys.argv[1])); s.start(); print(s.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(embedded.__file__).parents[2]) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        (watcher,) = server.children()
        parent.kill()
    until(lambda: not (alive(server.pid) or alive(watcher.pid)))


def test_who_waits_for_its_parent_s_end_ends_with_a_server_that_was_killed(server):
    (watcher,) = psutil.Process(server.pid).children()
    server.kill()
    until(lambda: not alive(watcher.pid))


def test_a_long_folder_gets_a_short_socket(tmp_path):
    folder = tmp_path / ("long" * 30) / "control"
    server = EmbeddedServer("control", folder)
    server.start()
    try:
        path = Path(urlsplit(server.url).path)
        assert len(str(path)) < 100
        assert path.parent.stat().st_mode & 0o077 == 0
        assert EmbeddedServer("control", folder).start() is True
    finally:
        server.stop()
    assert not path.parent.exists()
    assert server.start() is False
    server.stop()


def test_a_process_with_another_folder_for_temporary_files_finds_the_socket_and_a_copy_of_the_home_does_not(tmp_path, monkeypatch):
    folder, copied = (tmp_path / name / ("long" * 30) / "control" for name in ("home", "copy"))
    server = EmbeddedServer("control", folder)
    server.start()
    with tempfile.TemporaryDirectory() as other:
        monkeypatch.setattr(tempfile, "tempdir", other)
        try:
            assert EmbeddedServer("control", folder).known_url() == server.url
            assert EmbeddedServer("control", folder).start() is True
            shutil.copytree(folder, copied)
            assert EmbeddedServer("control", copied).known_url() != server.url
        finally:
            server.stop()
        assert server.start() is False
        server.stop()
        assert server.socket.is_relative_to(other)


def test_a_server_that_cannot_start_is_quoted(tmp_path):
    folder = tmp_path / "data"
    server = EmbeddedServer("data", folder, maxmemory="nonsense")
    with pytest.raises(BrokerUnavailable, match=r"ended at once: .*maxmemory.*server\.log"):
        server.start()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="home"):
        EmbeddedServer("data", tmp_path / "file" / "data").start()


def test_wrong_password_is_refused_without_naming_it(server):
    wrong = f"unix://:not-the-secret@{urlsplit(server.url).path}"
    with pytest.raises(BrokerRefused, match="refuses the password") as caught:
        connect(wrong)
    assert "not-the-secret" not in str(caught.value)
    with pytest.raises(BrokerRefused, match="password"):
        connect(f"unix://{urlsplit(server.url).path}")


def test_nobody_there_is_named_with_the_address():
    with pytest.raises(BrokerUnavailable, match=r"no broker at redis://127\.0\.0\.1:1/0"):
        connect("redis://:secret@127.0.0.1:1/0", timeout_s=1)
    with pytest.raises(BrokerUnavailable, match="no broker at unix:///nowhere"):
        connect("unix:///nowhere")


@pytest.mark.parametrize("url", ["", "nonsense", "http://host", "redis://", "redis://host:port/0", "amqp://:secret@host"])
def test_a_url_of_no_known_form_is_a_setting(url):
    with pytest.raises(ConfigError, match="URL") as caught:
        open_client(url)
    assert "secret" not in str(caught.value)


def test_a_frozen_broker_is_noticed(server):
    bus = RedisBus(connect(server.url, timeout_s=0.3))
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerUnavailable, match="did not answer in time"):
            bus.read(["s"], "g", "c", count=1, block_ms=3_600_000)  # an hour: who waited for it would never end here
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert bus.length("s") == 0


def test_a_full_broker_says_so(tmp_path):
    server = EmbeddedServer("data", tmp_path / "data", maxmemory="3mb")
    server.start()
    try:
        bus = RedisBus(connect(server.url))

        def fill() -> None:
            for _ in range(100):
                bus.publish("s", b"x" * 100_000)

        with pytest.raises(BrokerUnavailable, match="out of memory"):
            fill()
    finally:
        server.stop()


def test_a_key_of_another_type_is_refused(server):
    bus = RedisBus(connect(server.url))
    bus.put("s", b"text")
    with pytest.raises(BrokerUnavailable, match="refuses the command"):
        bus.publish("s", b"x")


def test_a_broker_that_died_is_started_again_at_its_address(tmp_path):
    with Brokers(load(overrides=[f'home="{tmp_path}"']), tmp_path) as brokers:
        assert brokers.revive() == []
        brokers.control.set("kept", "yes")
        before = brokers.pids
        with locked(tmp_path / ".broker" / "control" / "lock"):  # as while a large file is loaded
            kill(before[0])
            (death,) = brokers.revive()
            assert (death.spec.name, death.pid, death.cause) == ("broker-control", before[0], "SIGKILL")
            assert (brokers.end_hung(10.0, 100.0), brokers.silent(100.0), brokers.revive()) == ((), True, []), "nobody waits for it"
        until(lambda: answers(brokers))
        assert (brokers.end_hung(10.0, 102.0), brokers.silent(102.0)) == ((), False)
        assert brokers.pids[0] != before[0]
        assert brokers.pids[1] == before[1]
        assert brokers.control.get("kept") in (b"yes", None)  # at most the last second's writes are gone


def answers(brokers):
    with contextlib.suppress(BrokerUnavailable):
        return connect(brokers.apply(load()).broker.control_url).ping()
    return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_one_that_another_process_started_again_is_taken_over(tmp_path):
    with Brokers(load(overrides=[f'home="{tmp_path}"']), tmp_path) as brokers:
        kill(brokers.pids[0])
        other = EmbeddedServer("control", tmp_path / ".broker" / "control")
        other.start()
        assert len(brokers.revive()) == 1
        until(lambda: brokers.pids[0] == other.pid)
        assert brokers.revive() == []
        other.stop()


@pytest.mark.parametrize(("killed", "comes_back"), [(2, True), (3, False)])
def test_a_broker_that_is_killed_again_while_it_starts_is_tried_again(tmp_path, monkeypatch, killed, comes_back):
    spawn, starts = EmbeddedServer._spawn, []

    def kill_at_start(server, *args):
        process = spawn(server, *args)
        starts.append(process)
        if len(starts) <= killed:
            process.kill()
            process.wait()
        return process

    with Brokers(load(overrides=[f'home="{tmp_path}"']), tmp_path) as brokers:
        kill(brokers.pids[0])
        monkeypatch.setattr(EmbeddedServer, "_spawn", kill_at_start)
        assert len(brokers.revive()) == 1
        if comes_back:
            until(lambda: answers(brokers))
            assert brokers.revive() == []
        else:
            with pytest.raises(BrokerUnavailable, match="ended at once"):
                until(lambda: brokers.revive())
        assert len(starts) == 3


def test_one_that_hangs_is_noticed_killed_and_started_again(tmp_path):
    with Brokers(load(overrides=[f'home="{tmp_path}"']), tmp_path) as brokers:
        first, data = brokers.pids
        RedisBus(brokers.control).put("k", b"v")
        assert brokers.end_hung(10.0, 100.0) == ()
        os.kill(first, signal.SIGSTOP)
        assert brokers.end_hung(10.0, 100.1) == ()  # not asked so soon
        assert brokers.end_hung(10.0, 103.0) == ()
        assert brokers.silent(103.0)
        assert brokers.end_hung(10.0, 111.0) == ("control",)
        (death,) = until(brokers.revive)  # its threads die one after the other
        assert death.cause == "SIGKILL, no sign of life for 10 s"
        until(lambda: brokers.pids[0] != first)
        assert brokers.pids[1] == data
        until(lambda: answers(brokers))
        until(lambda: RedisBus(connect(brokers.apply(load()).broker.control_url)).get("k") == b"v")
