"""What is worth a notice, and the deaths of processes among it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from waiting import until

from azq.config import NoticesConfig, load
from azq.errors import ConfigError
from azq.ledger.types import RunState
from azq.process.start import machine_environment
from azq.status.conditions import Died, crash_loops
from azq.status.state import DesiredRun
from azq.waiting import Backoff
from azq.wire.machines import ProcessDeath
from azq.wire.messages import Heartbeat
from daemon.decide.notices import Lives, Notice, deaths, ends, lives
from daemon.serve.notices import ATTEMPTS, WAITING, Webhook

AT_ONCE = Backoff(0.0, 0.0)
ENDED = Notice("run.failed", "first", "run first failed: NaN", 7)


def desired(state: RunState, name: str = "first", reason: str = "") -> DesiredRun:
    return DesiredRun(name, state, None, reason=reason)


def test_a_run_that_ends_is_told_once_and_what_ended_before_the_first_look_never() -> None:
    failed = [desired(RunState.FAILED, reason="NaN")]
    assert ends({}, failed, 7) == []
    assert ends({"first": RunState.RUNNING}, failed, 7) == [ENDED]
    assert ends({"first": RunState.FAILED}, failed, 7) == []
    assert ends({"first": RunState.RUNNING}, [desired(RunState.PAUSED)], 7) == []


class Listener:
    """An HTTP server that answers with these statuses, one after the other, and then with the last of them."""

    def __init__(self, *statuses: int) -> None:
        self.got: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        listener, answers = self, iter([*statuses, *[statuses[-1]] * 1000])

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                listener.gate.wait()
                listener.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(next(answers))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.config = NoticesConfig(webhook=f"http://127.0.0.1:{self.server.server_port}/hook/secret")  # type: ignore[arg-type]

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def listen() -> Iterator[Any]:
    opened: list[Listener] = []

    def listener(*statuses: int) -> Listener:
        opened.append(Listener(*statuses))
        return opened[-1]

    yield listener
    for one in opened:
        one.close()


def test_a_listener_that_fails_twice_gets_it_at_the_third_attempt_and_then_the_next(listen: Any) -> None:
    listener = listen(500, 503, 204)
    with Webhook(listener.config, backoff=AT_ONCE) as webhook:
        webhook.send(ENDED)
        webhook.send(Notice("condition", "", "second", 8))
        until(lambda: len(listener.got) == 4, "both notices")
    assert listener.got[:3] == [{"kind": "run.failed", "run": "first", "text": "run first failed: NaN", "at_ms": 7}] * 3
    assert listener.got[3]["text"] == "second"


@pytest.mark.parametrize(("status", "attempts"), [(500, ATTEMPTS), (429, ATTEMPTS), (404, 1)])
def test_who_never_takes_it_is_left_after_bounded_attempts_and_the_log_names_no_address(
    listen: Any, capsys: pytest.CaptureFixture[str], status: int, attempts: int
) -> None:
    listener = listen(status)
    said = ""

    def told() -> str:
        nonlocal said
        said += capsys.readouterr().out
        return said if "notice_not_told" in said else ""

    with Webhook(listener.config, backoff=AT_ONCE) as webhook:
        webhook.send(ENDED)
        until(told, "line of log")
    assert len(listener.got) == attempts
    assert f"answered {status}" in said
    assert "secret" not in said


def test_a_listener_that_hangs_holds_nobody_up(listen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listener = listen(204)
    listener.gate.clear()
    with Webhook(listener.config, backoff=AT_ONCE) as webhook:
        for _ in range(WAITING + 2):  # one is under way, or not yet
            webhook.send(ENDED)
    assert "notice_dropped" in capsys.readouterr().out


def test_without_a_webhook_nothing_is_told_and_no_thread_runs() -> None:
    with Webhook(NoticesConfig()) as webhook:
        webhook.send(ENDED)
        assert not webhook.is_alive()


def test_the_address_is_the_daemons_alone_and_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_NOTICES__WEBHOOK", "https://h/secret")
    config = load()
    assert "secret" in machine_environment(config, "daemon")["AZQ_NOTICES"]
    assert "secret" not in str(machine_environment(config, "worker"))
    monkeypatch.setenv("AZQ_NOTICES__WEBHOOK", "h/secret")
    with pytest.raises(ConfigError, match="https://"):
        load()


LIFE_MS = 8_000.0


class Fleet:
    """Processes that beat every two seconds, and a look at them every second."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.lives: Lives = {}
        self.told: list[Died] = []
        self.found: list[ProcessDeath] = []
        self._beats: dict[str, tuple[Heartbeat, bool]] = {}  # and whether it lives

    def start(self, pid: int, role: str = "learner", host: str = "box", run: str = "first") -> str:
        worker = f"{role}@{host}:{pid}"
        self._beats[worker] = Heartbeat(role, worker, host, pid, "0", 3, self.now_ms, self.now_ms, run=run), True
        return worker

    def kill(self, worker: str) -> None:
        self._beats[worker] = self._beats[worker][0], False

    def leave(self, worker: str) -> None:
        del self._beats[worker]

    def look(self, seconds: int, *, away: bool = False) -> None:
        """So many looks; `away`: none of the daemon's goes through, and no heartbeat."""
        for _ in range(seconds):
            self.now_ms += 1_000
            if away:
                continue
            for worker, (beat, works) in list(self._beats.items()):
                if works and self.now_ms - beat.sent_ms >= 2_000:
                    beat = _sent(beat, self.now_ms)
                    self._beats[worker] = beat, works
                elif self.now_ms - beat.sent_ms > LIFE_MS:
                    del self._beats[worker]
            self._note([beat for beat, _ in self._beats.values()])

    def _note(self, beats: Sequence[Heartbeat]) -> None:
        self.lives, found = deaths(lives(self.lives, beats, self.now_ms, LIFE_MS), self.told)
        self.found += found


def _sent(beat: Heartbeat, at_ms: int) -> Heartbeat:
    return Heartbeat(beat.role, beat.worker, beat.host, beat.pid, "0", 3, beat.started_ms, at_ms, run=beat.run)


def test_who_dies_and_is_started_again_and_again_is_a_crash_loop() -> None:
    fleet = Fleet()
    for pid in range(1, 5):
        worker = fleet.start(pid)
        fleet.look(5)
        fleet.kill(worker)
        fleet.look(1)  # the next one is there before the heartbeat's life is over
    fleet.start(5)
    fleet.look(20)
    assert [(death.name, death.pid, death.run) for death in fleet.found] == [("learner", pid, "first") for pid in range(1, 5)]
    assert [loop.times for loop in crash_loops([Died(0, death) for death in fleet.found], 0)] == [4]


def test_who_takes_leave_or_was_told_of_or_has_nobody_in_his_place_is_none() -> None:
    left, told, alone = Fleet(), Fleet(), Fleet()
    for fleet in (left, told, alone):
        worker = fleet.start(1)
        fleet.look(5)
        (fleet.leave if fleet is left else fleet.kill)(worker)
        fleet.look(1)
    told.told = [Died(0, ProcessDeath("learner", "box", 1, "first", "SIGSEGV", ""))]
    left.start(2)
    told.start(2)
    alone.start(2, host="another")
    alone.start(3, run="second")
    for fleet in (left, told, alone):
        fleet.look(30)
        assert fleet.found == []


def test_a_control_plane_that_was_away_kills_nobody() -> None:
    fleet = Fleet()
    fleet.start(1)
    fleet.look(5)
    fleet.look(60, away=True)
    fleet._note([])  # it is back, and nobody has found his way yet
    fleet.look(5)
    assert fleet.found == []


def test_many_that_die_once_are_no_loop_and_each_line_keeps_its_name() -> None:
    fleet = Fleet()
    first = [fleet.start(pid, "selfplay") for pid in (1, 2, 3)]
    fleet.look(5)
    for worker in first:
        fleet.kill(worker)
    fleet.look(1)
    for pid in (11, 12, 13):
        fleet.start(pid, "selfplay")
    fleet.look(20)
    assert sorted(death.name for death in fleet.found) == ["selfplay", "selfplay-2", "selfplay-3"]
    assert crash_loops([Died(0, death) for death in fleet.found], 0) == ()
    assert sorted(life.name for life in fleet.lives.values()) == ["selfplay", "selfplay-2", "selfplay-3"]


def test_one_more_process_beside_another_is_not_in_its_place() -> None:
    fleet = Fleet()
    worker = fleet.start(1)
    fleet.look(5)
    fleet.start(2)
    fleet.look(5)
    fleet.kill(worker)
    fleet.look(30)
    assert fleet.found == []
