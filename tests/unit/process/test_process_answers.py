"""A process answers what it is asked from a thread of its own, and says nothing secret."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog

from azq import logs
from azq.bus.memory import MemoryBus
from azq.errors import AccessRefused, BrokerUnavailable, HostError, NotFound
from azq.process.answers import Answers
from azq.process.heartbeat import Presence
from azq.status.asking import ask
from azq.waiting import Backoff
from azq.wire import keys

LONG_S = 60.0


@pytest.fixture
def said() -> Iterator[None]:
    logs.setup("learner", stream=io.StringIO())
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def alive(bus: MemoryBus) -> str:
    presence = Presence("learner", life_s=600.0)
    presence.beat(bus)
    return presence.worker


def test_the_log_comes_back_without_passwords_while_the_main_thread_waits(said: None) -> None:
    bus = MemoryBus()
    worker = alive(bus)
    logs.get("test").info("connected", url="redis://me:secret@host/0", nested={"url": "redis://me:secret@host/1"})
    logs.get("test").info("second")
    with Answers(lambda: bus, worker):
        first, second = ask(bus, worker, "log", lines=2, within_s=LONG_S)
    assert "connected" in first
    assert "secret" not in first
    assert "second" in second


def test_the_stack_tells_the_threads_and_what_the_process_forked() -> None:
    bus = MemoryBus()
    worker = alive(bus)
    with Answers(lambda: bus, worker, lambda: ["process 7", "  somewhere"]):
        lines = ask(bus, worker, "stack", within_s=LONG_S)
    assert lines[0] == "thread MainThread"
    assert any("in test_the_stack_tells" in line for line in lines)
    assert lines[-2:] == ["process 7", "  somewhere"]


def test_who_does_not_live_is_not_found_and_who_is_silent_is_told_with_what_to_do() -> None:
    bus = MemoryBus()
    with pytest.raises(NotFound, match="azq workers"):
        ask(bus, "nobody@here:1", "log", lines=1)
    with pytest.raises(HostError, match=r"did not answer within 0\.05 s.*look at its log on its host"):
        ask(bus, alive(bus), "stack", within_s=0.05)


def test_a_question_that_nobody_can_read_is_passed_over() -> None:
    bus = MemoryBus()
    worker = alive(bus)
    bus.reply([(keys.question(worker), b"no message")])
    with Answers(lambda: bus, worker):
        assert ask(bus, worker, "stack", within_s=LONG_S)


def test_a_broker_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.process.answers.BACKOFF", Backoff(0.0, 0.0))
    bus, fails = MemoryBus(), iter([True])
    worker = alive(bus)

    def make() -> MemoryBus:
        if next(fails, False):
            raise BrokerUnavailable("away")
        return bus

    with Answers(make, worker):
        assert ask(bus, worker, "stack", within_s=LONG_S)


def test_a_broker_that_refuses_the_question_ends_the_thread() -> None:
    def refuse() -> MemoryBus:
        raise AccessRefused("no right to azq:question")

    refused = Answers(refuse, "learner@here:1")
    refused.start()
    refused.join(LONG_S)
    assert not refused.is_alive()
