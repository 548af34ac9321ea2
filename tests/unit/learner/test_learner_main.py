"""The process around the learner: its lock, the run's settings, its heartbeat."""

from __future__ import annotations

import os
import socket
from functools import partial

import msgspec
import pytest
from memory_broker import MemoryBus

from azq.config import Config, LearnerConfig, RunConfig, RunSections, WorkerConfig, dump_run
from azq.errors import ConfigError, DeviceError, MissingExtra, StateConflict, StoreError
from azq.ledger import Ledger
from azq.ledger.holder import lock_folder
from azq.process.cards import LateGpu
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat, LearnerStatus, RunRecord
from workers.learner import OPENING_EVERY_S, LearnerBeat, Opening, main


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


def test_without_their_part_several_ranks_are_refused_before_anything_is_opened(tmp_path, monkeypatch):
    bus = MemoryBus()
    sections = RunSections(run=RunConfig(game="tic_tac_toe"), learner=LearnerConfig(ranks=2))
    Ledger(bus.client).create_run(RunRecord("ttt", msgspec.json.encode(dump_run(sections)), {}, str(tmp_path / "run"), 0))
    monkeypatch.setattr("workers.learner.connect_at_start", lambda broker: bus.client)
    monkeypatch.setattr("azq.parts.extensions", lambda kind: iter(()))
    with pytest.raises(MissingExtra, match=r"install all of azq, or set learner\.ranks = 1"):
        main(Config(), "ttt")
    assert not (tmp_path / "run").exists()


def test_heartbeats_appear_and_go(tmp_path):
    bus = MemoryBus()
    beat = LearnerBeat(bus, "ttt", tmp_path, WorkerConfig())
    beat.turn(None)
    sent = decode(bus.get(keys.beat(beat.worker)), Heartbeat)
    assert (sent.role, sent.run, sent.pid) == ("learner", "ttt", os.getpid())
    beat.end()
    assert bus.get(keys.beat(beat.worker)) is None


def test_what_was_known_last_is_said_again_only_once_news_is_late(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("azq.process.heartbeat.time.monotonic", lambda: now[0])
    bus = MemoryBus()
    beat = LearnerBeat(bus, "ttt", tmp_path, WorkerConfig(heartbeat_s=2.0))
    beat.turn(None)
    for second in range(1, 6):
        now[0] = float(second)
        beat.say()  # each time just before there is news
        beat.turn(LearnerStatus(9, 9, 9, 9, 0, 9, 1.0, 1.0, 0.1, second, False, False, 9.0, 0))
    assert decode(bus.get(keys.beat(beat.worker)), Heartbeat).weight_versions == {"ttt": 4}
    now[0] = 9.0
    bus.delete(keys.beat(beat.worker))
    beat.say()
    assert bus.get(keys.beat(beat.worker)) is not None


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
