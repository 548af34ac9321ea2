"""The learner's process on a real broker: killed, told to stop, locked out, cut off."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner_processes import RUN, Place
from waiting import PATIENCE_S, until

from azq.bus.embedded import EmbeddedServer
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.errors import ExitCode
from azq.learner import checkpoint
from azq.ledger.holder import lock_folder
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat, WeightEvent

SECTIONS = RunSections(
    run=RunConfig(game="tic_tac_toe"),
    network=NetworkConfig(blocks=1, channels=8),
    learner=LearnerConfig(
        device="cpu",
        threads=1,
        batch_size=16,
        min_window=50,
        samples_per_insert=1.0,
        warmup_steps=2,
        publish_every_s=0.5,
        checkpoint_every_s=1.0,
    ),
)


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Iterator[Place]:
    where = Place(broker.control_url, tmp_path, SECTIONS)
    yield where
    where.close()


def test_learns_beats_publishes_stops_and_resumes(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        address = str(place.folder / "notify")
        supervisor.bind(address)
        supervisor.settimeout(PATIENCE_S)
        process = place.learner(NOTIFY_SOCKET=address)
        said = ""
        while "READY=1" not in said:
            said += supervisor.recv(4096).decode()
    place.finish_games(40)
    until(lambda: bool((status := place.status()) and status.step >= 5), "training")
    (beat,) = (decode(frame, Heartbeat) for frame in place.bus.values(keys.BEAT_PREFIX).values())
    assert (beat.role, beat.run, beat.pid) == ("learner", RUN, process.pid)
    place.finish_games(40)
    place.stop(process)
    assert place.all_inserted()
    assert place.ledger.counts(RUN).inserted == 80
    assert not place.bus.values(keys.BEAT_PREFIX)
    versions = [decode(entry.frame, WeightEvent).version for entry in place.bus.after(keys.weights(RUN), "0")]
    assert versions == list(range(1, len(versions) + 1))
    state = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
    assert state.step == place.status().step
    assert any((place.folder / RUN / "tensorboard").iterdir())
    again = place.learner()
    until(lambda: bool((status := place.status()) and status.sent_ms > 0 and place.bus.values(keys.BEAT_PREFIX)), "second start")
    place.finish_games(20)
    until(place.all_inserted, "games of the second life")
    place.stop(again)
    assert place.status().step >= state.step
    assert place.ledger.counts(RUN).inserted == 100


@pytest.mark.slow
def test_killed_again_and_again_every_game_is_stored_once(place):
    for _ in range(2):
        process = place.learner()
        before = place.ledger.counts(RUN).inserted
        place.finish_games(15)
        until(lambda before=before: place.ledger.counts(RUN).inserted > before, "some games")
        place.finish_games(15)
        process.kill()
        process.wait()
    process = place.learner()
    until(place.all_inserted, "every game")
    place.stop(process)
    counts = place.ledger.counts(RUN)
    assert counts.balanced
    assert counts.inserted == counts.finished == 60


def test_an_unknown_run_is_one_line_and_an_exit_code(place):
    place.client.flushall()
    process = place.learner()
    output = place.output(process)
    assert process.returncode == ExitCode.NOT_FOUND
    assert RUN in output
    assert "Traceback" not in output


def test_a_broker_that_comes_back_finds_everything_kept(tmp_path):
    server = EmbeddedServer("control", tmp_path / "broker")
    server.start()
    place = Place(server.url, tmp_path, SECTIONS)
    try:
        process = place.learner()
        place.finish_games(20)
        until(place.all_inserted, "the games before")
        step = until(place.status, "a first word of how far it is").step
        server.stop()
        until(lambda: "broker_away" in place.log(process), "the learner sees that nobody answers")
        server = EmbeddedServer("control", tmp_path / "broker")
        server.start()
        place.finish_games(20)
        until(lambda: place.all_inserted() and place.ledger.counts(RUN).inserted == 40, "the games after")
        place.stop(process)
        assert place.status().step >= step
        assert place.ledger.counts(RUN).balanced
    finally:
        place.close()
        server.stop()


def test_a_folder_that_another_learner_holds_is_refused_by_name(place):
    with lock_folder(place.folder / RUN):
        process = place.learner()
        output = place.output(process)
    assert process.returncode == ExitCode.CONFLICT
    assert f"process {os.getpid()}" in output
    assert "Traceback" not in output
