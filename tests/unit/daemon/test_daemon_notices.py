"""Notices: which changes are worth one, and that they reach a webhook which fails at first, or never hold anybody up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from waiting import until

from azq.config import NoticesConfig, load
from azq.errors import ConfigError
from azq.ledger.types import RunState
from azq.process.start import machine_environment
from azq.status.state import DesiredRun
from azq.waiting import Backoff
from daemon.decide.actions import ReportSpent
from daemon.decide.notices import Notice, ends, lasting, states_of
from daemon.serve.notices import ATTEMPTS, WAITING, Webhook

AT_ONCE = Backoff(0.0, 0.0)
ENDED = Notice("run.failed", "first", "run first failed: NaN", 7)


def desired(state: RunState, name: str = "first", reason: str = "") -> DesiredRun:
    return DesiredRun(name, state, None, reason=reason)


def test_a_run_that_ends_is_told_once_and_what_ended_before_the_first_look_never() -> None:
    running, failed = [desired(RunState.RUNNING)], [desired(RunState.FAILED, reason="NaN")]
    assert ends({}, failed, 7) == []
    assert ends(states_of(running), failed, 7) == [ENDED]
    assert ends(states_of(failed), failed, 7) == []
    assert ends(states_of(running), [desired(RunState.PAUSED)], 7) == []


def test_a_condition_that_lasts_is_told_in_its_words() -> None:
    assert lasting(ReportSpent("", "80 % of the fleet's budget are spent"), 9) == Notice(
        "condition", "", "80 % of the fleet's budget are spent", 9
    )


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
        webhook.tell(ENDED)
        webhook.tell(Notice("condition", "", "second", 8))
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
        webhook.tell(ENDED)
        until(told, "line of log")
    assert len(listener.got) == attempts
    assert f"answered {status}" in said
    assert "secret" not in said


def test_a_listener_that_hangs_holds_nobody_up(listen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listener = listen(204)
    listener.gate.clear()
    with Webhook(listener.config, backoff=AT_ONCE) as webhook:
        for _ in range(WAITING + 2):  # one is under way, or not yet
            webhook.tell(ENDED)
    assert "notice_dropped" in capsys.readouterr().out


def test_without_a_webhook_nothing_is_told_and_no_thread_runs() -> None:
    with Webhook(NoticesConfig()) as webhook:
        webhook.tell(ENDED)
        assert not webhook.is_alive()


def test_the_address_is_the_daemons_alone_and_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_NOTICES__WEBHOOK", "https://h/secret")
    config = load()
    assert "secret" in machine_environment(config, "daemon")["AZQ_NOTICES"]
    assert "secret" not in str(machine_environment(config, "worker"))
    monkeypatch.setenv("AZQ_NOTICES__WEBHOOK", "h/secret")
    with pytest.raises(ConfigError, match="https://"):
        load()
