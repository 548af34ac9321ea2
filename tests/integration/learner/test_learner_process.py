"""The learner's process on a real broker: stopped, started again, locked out."""

from __future__ import annotations

import os
import socket

from commands import azq_here
from learner_processes import RUN
from waiting import PATIENCE_S, until

from azq.errors import ExitCode
from azq.learner import checkpoint
from azq.ledger.holder import lock_folder
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat, WeightEvent


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


def test_an_unknown_run_and_a_folder_that_another_learner_holds_are_one_line_and_an_exit_code(place):
    command = ("learner", "--run", RUN)
    with lock_folder(place.folder / RUN):
        held = azq_here(place.folder, *command, AZQ_BROKER__CONTROL_URL=place.url)
    assert held.returncode == ExitCode.CONFLICT
    assert f"process {os.getpid()}" in held.stderr
    place.client.flushall()
    unknown = azq_here(place.folder, *command, AZQ_BROKER__CONTROL_URL=place.url)
    assert unknown.returncode == ExitCode.NOT_FOUND
    assert RUN in unknown.stderr
    assert len(held.stderr.splitlines()) == len(unknown.stderr.splitlines()) == 1
