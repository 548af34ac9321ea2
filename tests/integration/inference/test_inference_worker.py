"""The inference worker as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import azq_here
from inference_doubles import NETWORK, RUN, SPEC, ask, observations, weights
from notifications import Notifications
from waiting import PATIENCE_S, until

from azq.bus.redis import RedisBus
from azq.config import RunSections, dump_run
from azq.errors import ExitCode
from azq.inference.ask.client import StreamEvaluator
from azq.ledger import Ledger
from azq.store import open_store
from azq.wire import codec, keys
from azq.wire.connect import connect
from azq.wire.messages import Heartbeat, RunRecord, WeightEvent

CODE = """
import sys
from azq.config import load
from azq.process.start import run_main
from workers.inference import main
sys.exit(run_main("inference", lambda: main(load(None, sys.argv[1:]))))
"""


@pytest.fixture
def start(broker, tmp_path):
    """Starts workers that end with the test; settings go by the environment, as the broker's address holds its password."""
    started = []

    def begin(*overrides, **environment):
        broker_settings = json.dumps({"control_url": broker.control_url, "data_url": broker.data_url})
        variables = {**os.environ, "AZQ_BROKER": broker_settings, "AZQ_HOME": str(tmp_path), **environment}
        command = [sys.executable, "-c", CODE, "inference.device=cpu", "inference.threads=1", "worker.heartbeat_s=0.1", *overrides]
        started.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            print(process.communicate()[1])  # shown where the test failed


@pytest.fixture
def notices(tmp_path):
    """A service manager's ear."""
    ear = Notifications(tmp_path / "notify")
    yield ear
    ear.close()


@pytest.fixture
def run(broker, tmp_path):
    """A run of connect four with weights in its folder."""
    client = connect(broker.control_url)
    sections = RunSections(network=NETWORK)
    folder = tmp_path / RUN
    Ledger(client).create_run(RunRecord(RUN, json.dumps(dump_run(sections)).encode(), {}, str(folder), 0))
    sha256, uri = open_store("file", directory=folder / "weights", client=client).put(weights(1))
    RedisBus(client).publish(keys.weights(RUN), codec.encode(WeightEvent(RUN, 1, sha256, uri, 10, 0)))
    yield RUN
    client.close()


def test_it_serves_beats_and_leaves_at_a_signal(broker, run, start, notices, tmp_path):
    process = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
    notices.wait_for("READY=1")
    client = StreamEvaluator(RedisBus(broker.data_url), run, "c1", num_actions=SPEC.num_actions)
    assert ask(client, observations(8)).weight_version == 1
    control = RedisBus(broker.control_url)

    def beats() -> list[Heartbeat]:
        return [codec.decode(frame, Heartbeat) for frame in control.values(keys.BEAT_PREFIX).values()]

    until(lambda: any(beat.weight_versions == {run: 1} for beat in beats()), "its heartbeat names the weights it serves")
    until(lambda: beats()[0].rates["evaluations_per_s"] > 0, "its heartbeat counts evaluations")
    (beat,) = beats()
    assert (beat.role, beat.pid) == ("inference", process.pid)
    process.send_signal(signal.SIGTERM)
    notices.wait_for("STOPPING=1")
    _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.OK, log
    assert beats() == []
    assert "Traceback" not in log
    client.close()
    control.close()


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ("broker.control_url=unix:///nowhere/control.sock", ExitCode.BROKER_UNAVAILABLE, "/nowhere/control.sock"),
        ("broker.data_url=unix:///nowhere/data.sock", ExitCode.BROKER_UNAVAILABLE, "/nowhere/data.sock"),
        ("broker.control_url=", ExitCode.CONFIG, "no broker: set broker.control_url"),
        ("broker.control_url={wrong}", ExitCode.BROKER_REFUSED, "password"),
        ("inference.device=cuda:77", ExitCode.CONFIG, "'cuda:77' is not on this host"),
    ],
)
def test_what_it_cannot_work_with_is_said_in_one_line(broker, tmp_path, setting, code, words):
    scheme, _, rest = broker.control_url.partition("://")
    setting = setting.format(wrong=f"{scheme}://:sesame@{rest.rpartition('@')[2]}")
    addresses = {"AZQ_BROKER": json.dumps({"control_url": broker.control_url, "data_url": broker.data_url})}
    ended = azq_here(tmp_path, "inference", "--set", setting, **addresses)
    assert ended.returncode == code, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert words in ended.stderr
    assert "sesame" not in ended.stderr
