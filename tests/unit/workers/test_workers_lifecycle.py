"""Board, rates, heartbeat and watchdog of a worker, without Celery."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from celery import signals
from celery.exceptions import WorkerShutdown
from celery.worker import state
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE_S

from azq import metrics
from azq.config import BrokerConfig, Config, WorkerConfig
from azq.errors import AccessRefused, BrokerUnavailable, ConfigError
from azq.process.liveness import READY_PID, watchdog_interval_s
from azq.wire.codec import decode
from azq.wire.fitness import ServerFacts
from azq.wire.messages import Heartbeat
from workers import lifecycle, worker
from workers.children import Board, ChildFigures, merge, versions
from workers.lifecycle import PatientConsumer, WorkerHeartbeat, loop_lives, node_name, role_of
from workers.worker import build_app

SPENT = ("phase_wall_search", "phase_cpu_wait")
FIGURES = ChildFigures(True, "my-run", 12, {name: 1.5 + place for place, name in enumerate((*metrics.OF_CHILDREN, *SPENT))})


def test_a_forked_child_sees_the_stop_and_its_figures_are_seen() -> None:
    board = Board(2)
    assert not board.stopping()
    assert board.read() == []
    ready, answer = os.pipe()
    child = os.fork()
    if child == 0:
        board.write(1, FIGURES)
        os.write(answer, b"x")
        while not board.stopping():
            pass
        os._exit(7)
    os.read(ready, 1)
    seen, busy = board.read(), board.busy()
    board.stop()  # before anything can fail: the child waits for it
    assert seen == [FIGURES]
    assert busy
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    os.close(ready)
    os.close(answer)


def test_more_children_than_slots_do_no_harm() -> None:
    board = Board(1)
    board.write(9, ChildFigures(run="x" * 200))
    (figures,) = board.read()
    assert not board.busy()
    assert figures.run == "x" * 64


@given(st.lists(st.tuples(st.just(0.0) | st.floats(0.001, 1e6), st.floats(0, 1e4)), min_size=1, max_size=8))
def test_rates_add_up_and_means_stay_between_the_children(children: list[tuple[float, float]]) -> None:
    figures = [ChildFigures(rates={metrics.EVALUATIONS_PER_S: rate, metrics.MEAN_BATCH: batch}) for rate, batch in children]
    merged = merge(figures)
    assert merged[metrics.EVALUATIONS_PER_S] == pytest.approx(sum(rate for rate, _ in children))
    batches = [batch for rate, batch in children if rate > 0] or [0.0]
    assert min(batches) - 1e-6 <= merged[metrics.MEAN_BATCH] <= max(batches) * (1 + 1e-9) + 1e-6


def test_an_idle_worker_reports_no_rates_and_the_newest_version_counts() -> None:
    assert merge([]) == {}
    children = [ChildFigures(run="a", weight_version=3), ChildFigures(run="a", weight_version=2), ChildFigures(), ChildFigures(run="b")]
    assert versions(children) == {"a": 3, "b": 0}


HEARTBEAT_S = 0.01


class FakeBus:
    """Keeps what is put; fails while `away`."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.away = False
        self.beat = threading.Event()

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        if self.away:
            raise BrokerUnavailable("nobody answers")
        assert life_s == 4 * HEARTBEAT_S
        self.values[key] = value
        self.beat.set()

    def delete(self, *names: str) -> None:
        for name in names:
            self.values.pop(name, None)


def heartbeat(bus: FakeBus) -> WorkerHeartbeat:
    config = WorkerConfig(heartbeat_s=HEARTBEAT_S)
    return WorkerHeartbeat(lambda: bus, config, Board(1), ["selfplay.cpu"], ["cpu"], 1)  # type: ignore[arg-type, return-value]


def test_a_heart_beats_outlives_an_outage_and_says_good_bye() -> None:
    bus = FakeBus()
    beating = heartbeat(bus)
    beating.start()
    assert bus.beat.wait(PATIENCE_S)
    (frame,) = bus.values.values()
    message = decode(frame, Heartbeat)
    assert (message.role, message.queues, message.pid) == ("selfplay", ("selfplay.cpu",), os.getpid())
    bus.away = True
    bus.values.clear()
    bus.beat.clear()
    assert not bus.beat.wait(0.1)
    bus.away = False
    assert bus.beat.wait(PATIENCE_S)
    beating.end()
    assert bus.values == {}


def test_the_watchdog_is_fed_while_the_loop_turns_or_the_broker_is_away() -> None:
    assert loop_lives(None, 100.0, 6.0)
    assert loop_lives(95.0, 100.0, 6.0)
    assert not loop_lives(90.0, 100.0, 6.0)
    assert loop_lives(60.0, 100.0, 6.0, away_s=98.0)  # stuck in a call to a broker that does not answer
    assert not loop_lives(60.0, 100.0, 6.0, away_s=90.0)


def test_a_stuck_loop_starves_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
        service_manager.bind(str(path))
        service_manager.settimeout(0.2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv(READY_PID, str(os.getpid()))
        monkeypatch.setenv("WATCHDOG_USEC", "40000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        assert watchdog_interval_s() == 0.02
        stuck = heartbeat(FakeBus())
        stuck.loop_turned_s = -1e9
        stuck.start()
        with pytest.raises(TimeoutError):
            service_manager.recv(100)
        stuck.loop_turned_s = None
        service_manager.settimeout(PATIENCE_S)
        assert service_manager.recv(100) == b"WATCHDOG=1"
        stuck.end()


def test_a_watchdog_meant_for_another_process_is_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_interval_s() is None


def test_names_tell_role_queues_and_process() -> None:
    assert role_of(["eval.cpu", "selfplay.cpu"]) == "selfplay"
    assert role_of(["eval.cpu"]) == "eval"
    assert node_name(["eval.cpu"]).startswith(f"eval.cpu-{os.getpid()}@")


@pytest.mark.parametrize("queues", [[], ["selfplay"], ["train.cpu"], ["selfplay.CPU"]])
def test_queues_of_no_known_form_are_refused(queues: list[str]) -> None:
    with pytest.raises(ConfigError):
        worker.main(Config(), queues, 1)


def test_a_worker_without_a_broker_says_so() -> None:
    with pytest.raises(ConfigError, match="control_url"):
        worker.main(Config(), ["selfplay.cpu"], 1)


def test_a_worker_whose_user_is_gone_tells_itself_to_stop_and_remembers_why(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))

    def refuse() -> NoReturn:
        raise AccessRefused("broker refuses the password; azq join-token")

    refused = WorkerHeartbeat(refuse, WorkerConfig(heartbeat_s=1e-3), Board(1), ["selfplay.cpu"], ["cpu"], 1)
    refused.run()  # returns: it beats no more
    assert told == [(os.getpid(), signal.SIGTERM)]
    assert refused.refused is not None


def test_a_worker_connects_again_once_its_broker_takes_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, slept = iter([False, False, True]), list[float]()
    consumer = PatientConsumer.__new__(PatientConsumer)
    consumer.app = SimpleNamespace(azq=SimpleNamespace(takes_writes=lambda: next(answers)))
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("celery.worker.consumer.Consumer.connect", lambda consumer: "connected")
    assert consumer.connect() == "connected"
    assert slept == [lifecycle.CONNECT_EVERY_S] * 2
    consumer.app.azq.takes_writes = lambda: False
    monkeypatch.setattr(state, "should_stop", 0)
    with pytest.raises(WorkerShutdown):
        consumer.connect()


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ("", True),
        ("OOM command not allowed", False),
        ("MISCONF no space", False),
        ("NOPERM this user", True),
        (BrokerUnavailable("away"), False),
        (AccessRefused("sent away"), True),
    ],
)
def test_a_broker_takes_writes_or_never_will(found: str | Exception, answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = worker.WorkerParts(Config(), ["selfplay.cpu"])

    def facts_of(_client: object) -> ServerFacts:
        if isinstance(found, Exception):
            raise found
        return ServerFacts(probe=found)

    monkeypatch.setattr(worker, "facts_of", facts_of)
    monkeypatch.setattr(worker, "connect", lambda _url: SimpleNamespace(close=lambda: None))
    assert parts.takes_writes() is answer


def test_a_pool_child_keeps_no_setting_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_BROKER__CONTROL_URL", "redis://:planted@127.0.0.1:1/0")
    monkeypatch.setenv("AZQ_DAEMON", '{"token": "planted-token"}')
    app = build_app(Config(broker=BrokerConfig(control_url="redis://127.0.0.1:1/0")))  # nobody is asked
    signals.worker_process_init.send(app)
    assert not any("planted" in value for value in os.environ.values())


def test_the_parent_of_a_pool_never_loads_torch() -> None:
    code = "import sys, workers.app, workers.worker, workers.selfplay, workers.evaluate; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": "redis://127.0.0.1:1/0"}  # nobody is asked
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S, env=environment).returncode == 0


CARE = """
import sys, workers.app, workers.worker
from azq import logs
from azq.errors import BrokerError
from azq.ledger import Ledger, scripts
from azq.wire.connect import connect
logs.setup("test")
before = set(sys.modules)
for group in ("games", "jobs"):
    scripts.source(group)
try:
    Ledger(connect("unix:///nowhere/broker.sock")).job("r:1")
except BrokerError as error:
    logs.get("test").warning("pool_child_died", reason=str(error))
sys.exit(" ".join(sorted(set(sys.modules) - before)) or 0)
"""


def test_what_cares_for_dead_children_imports_nothing() -> None:
    # It does so in a thread, at the very moment in which another child is forked: that one would wait for the import's lock for ever.
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run([sys.executable, "-c", CARE], check=False, timeout=PATIENCE_S, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pool_child_died" in done.stderr
