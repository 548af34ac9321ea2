"""The process around the learner: its lock, the run's settings, its heartbeat."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from memory_broker import MemoryBus

from azq.config import Config, WorkerConfig
from azq.errors import ConfigError, DeviceError, ExitCode, StateConflict, StoreError
from azq.learner.ranks.rules import RankPlace
from azq.ledger.holder import lock_folder
from azq.process.cards import LateGpu
from azq.process.supervisor import STEADY_AFTER_S, ChildSpec
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat
from workers.learner import BACKOFF, OPENING_EVERY_S, Launcher, LearnerBeat, Opening, environment, main


def test_a_folder_is_held_by_one_learner_and_free_afterwards(tmp_path):
    folder = tmp_path / "run"
    with lock_folder(folder):
        with pytest.raises(StateConflict, match=f"process {os.getpid()}"), lock_folder(folder):
            pass
        with pytest.raises(StateConflict), lock_folder(folder):
            pass
    with lock_folder(folder):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match="cannot be used"), lock_folder(tmp_path / "run"):
        pass


def test_without_a_broker_address_the_remedy_is_named():
    with pytest.raises(ConfigError, match=r"broker\.control_url"):
        main(Config(), "ttt")


def test_heartbeats_appear_and_go(tmp_path):
    bus = MemoryBus()
    beat = LearnerBeat(bus, "ttt", tmp_path, WorkerConfig())
    beat.turn(None)
    sent = decode(bus.get(keys.beat(beat.worker)), Heartbeat)
    assert (sent.role, sent.run, sent.pid) == ("learner", "ttt", os.getpid())
    beat.end()
    assert bus.get(keys.beat(beat.worker)) is None


def test_a_late_gpu_ends_one_that_trains_on_the_cpu(tmp_path):
    (dev := tmp_path / "dev").mkdir()
    beat = LearnerBeat(MemoryBus(), "ttt", tmp_path, WorkerConfig(heartbeat_s=1e-9))
    beat.look = partial(LateGpu("auto", dev).check, "cpu")
    beat.turn(None)
    (dev / "nvidia0").touch()
    with pytest.raises(DeviceError, match="starts again"):
        beat.turn(None)


def test_a_learner_that_reads_a_long_log_asks_systemd_for_time_and_beats(tmp_path, monkeypatch):
    now = [0.0]
    bus = MemoryBus()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", str(tmp_path / "notify"))
        opening = Opening("ttt", LearnerBeat(bus, "ttt", tmp_path, WorkerConfig()), clock=lambda: now[0])
        opening.turn("file 1 of 2")
        with pytest.raises(BlockingIOError):
            manager.recv(1000)
        now[0] = OPENING_EVERY_S
        opening.turn("file 2 of 2")
        opening.turn("file 2 of 2")
        assert manager.recv(1000) == b"EXTEND_TIMEOUT_USEC=120000000\nSTATUS=opening ttt: file 2 of 2"
        with pytest.raises(BlockingIOError):
            manager.recv(1000)
    assert bus.values(keys.BEAT_PREFIX)


class FakeProcess:
    """Ends when it is told to; one that is stubborn only when it is killed."""

    pid = 7

    def __init__(self, *, stubborn: bool = False) -> None:
        self.code: int | None = None
        self.stubborn = stubborn

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, sig: int) -> None:
        if sig == signal.SIGKILL:
            self.code = -9
        elif not self.stubborn:
            self.code = 0


class Host:
    """A launcher with a clock and processes of its own."""

    def __init__(self, place: RankPlace) -> None:
        self.now = 0.0
        self.started: list[tuple[int, FakeProcess]] = []
        self.launcher = Launcher("first", place, Path("folder"), self.start, clock=lambda: self.now)

    def start(self, spec: ChildSpec, env: Mapping[str, str]) -> FakeProcess:
        assert (spec.command[-4:], env["RANK"]) == (["--run", "first", "--folder", "folder"], spec.name)
        self.started.append((int(spec.name), FakeProcess()))
        return self.started[-1][1]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def ranks(self) -> list[int]:
        return [rank for rank, _ in self.started]


def test_every_rank_but_the_first_is_started_once():
    host = Host(RankPlace(ranks=3))
    host.launcher.turn()
    host.launcher.turn()
    assert host.ranks() == [1, 2]


def test_ranks_that_something_else_launches_are_left_alone():
    host = Host(RankPlace(ranks=3, launched=True))
    host.launcher.turn()
    assert host.ranks() == []


def test_a_rank_that_dies_comes_back_after_a_pause_that_grows_and_shrinks_after_a_steady_life():
    host = Host(RankPlace(ranks=2))
    host.launcher.turn()
    pauses = []
    for lived_s in (1, 1, 1, STEADY_AFTER_S):
        host.now += lived_s
        host.started[-1][1].code = -9
        count, begun = len(host.started), host.now
        while len(host.started) == count:
            host.launcher.turn()
            host.now += 0.25
        pauses.append(host.now - 0.25 - begun)
    assert pauses == [BACKOFF.first_s, 2 * BACKOFF.first_s, 4 * BACKOFF.first_s, BACKOFF.first_s]


def test_a_rank_whose_settings_are_wrong_is_not_started_again():
    host = Host(RankPlace(ranks=2))
    host.launcher.turn()
    host.started[0][1].code = int(ExitCode.CONFIG)
    for _ in range(20):
        host.now += 10
        host.launcher.turn()
    assert host.ranks() == [1]


def test_stopping_ends_all_and_kills_who_will_not():
    host = Host(RankPlace(ranks=3))
    host.launcher.turn()
    host.started[1][1].stubborn = True
    host.launcher.stop(host.wait)
    assert [process.code for _, process in host.started] == [0, -9]


def test_a_rank_inherits_all_but_the_learners_signs_of_life():
    environ = {"AZQ_HOME": "/h", "NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "AZQ_ALIVE_FILE": "/a", "AZQ_PARENT_PID": "1"}
    assert environment(environ, 2, 77) == {"AZQ_HOME": "/h", "RANK": "2", "LOCAL_RANK": "2", "AZQ_PARENT_PID": "77"}
