"""What is sent for a job, and what a broker's refusal becomes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis.exceptions import AuthenticationError, NoPermissionError

from azq import queue
from azq.errors import BrokerRefused, BrokerUnavailable, UnknownTagError
from azq.ledger.types import JobState, JobView
from azq.queue import make_app, publish
from azq.waiting import Waits
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchSpec


def view(kind: Kind = Kind.SELFPLAY, tag: str = "cpu", priority: int = 0) -> JobView:
    job = Job(job_id="r:7", run="r", kind=kind, tag=tag, priority=priority)
    return JobView(job, JobState.QUEUED, 2, "", 0, 0, 0, 0, 0, "")


def sent(monkeypatch: pytest.MonkeyPatch, job: JobView, game: str = "") -> tuple[str, dict[str, Any]]:
    """The task and the options of the one message that is sent."""
    app, messages = make_app("redis://localhost:1/0"), []
    monkeypatch.setattr(app, "send_task", lambda task, **options: messages.append((task, options)))
    publish(app, job, game)
    [message] = messages
    return message


def test_a_message_is_a_job_and_its_attempt_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    task, options = sent(monkeypatch, view(Kind.EVAL, "jarvis"))
    assert (task, options["args"], options["task_id"], options["queue"].name) == ("azq.eval", ("r:7", 2), "r:7:2", "eval.jarvis")
    assert (options["queue"].exchange.name, options["queue"].routing_key) == ("eval.jarvis", "eval.jarvis")


@pytest.mark.parametrize(
    ("job", "game", "words"),
    [
        (Job("ttt:7", "ttt", Kind.SELFPLAY, "cpu", games=128), "connect_four", "ttt:7 attempt 2 · selfplay.cpu · connect_four · 128 games"),
        (Job("r:7", "r", Kind.SELFPLAY, "browser"), "", "r:7 attempt 2 · selfplay.browser"),
        (
            Job("r:7", "r", Kind.EVAL, "cpu", payload=encode(MatchSpec("latest", "gtp:x y", 20, 8, 0, 3))),
            "hex",
            "latest - gtp:x y, 20 games",
        ),
        (
            Job("r:7", "r", Kind.EVAL, "cpu", payload=encode(GradeSpec(5, 60, 16, 1))),
            "hex",
            "weights:5 graded on 60 positions",
        ),
        (Job("r:7", "r", Kind.EVAL, "cpu", payload=b"?"), "hex", "· hex"),
    ],
)
def test_monitors_are_told_what_a_job_is(monkeypatch: pytest.MonkeyPatch, job: Job, game: str, words: str) -> None:
    told = JobView(job, JobState.QUEUED, 2, "", 0, 0, 0, 0, 0, "")
    said = sent(monkeypatch, told, game)[1]["argsrepr"]
    assert said.startswith(f"{job.job_id} attempt 2 · {job.queue}")
    assert said.endswith(words)


def test_whoever_publishes_waits_for_the_broker_and_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    now, excused = [0.0], []
    monkeypatch.setattr(queue, "WAITS", waits := Waits(lambda: now[0]))
    app = make_app("redis://localhost:1/0")

    def send_task(*_: object, **__: object) -> None:
        now[0] += 2.0
        excused.append(waits.excuse(threading.get_ident()))

    monkeypatch.setattr(app, "send_task", send_task)
    publish(app, view())
    assert excused == [True]


@pytest.mark.parametrize(("priority", "told"), [(-1, 0), (0, 0), (1, 1), (8, 8), (9, 9), (10, 9)])
def test_a_priority_is_told_as_celery_knows_it(monkeypatch: pytest.MonkeyPatch, priority: int, told: int) -> None:
    assert sent(monkeypatch, view(priority=priority))[1]["priority"] == told


@pytest.mark.parametrize(("kind", "tag"), [("train", "cpu"), (Kind.SELFPLAY, "No Such Tag")])
def test_a_malformed_route_is_refused_before_anything_is_sent(kind: Any, tag: str) -> None:
    with pytest.raises(UnknownTagError):
        publish(make_app("redis://localhost:1/0"), view(kind, tag))


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Publishes where sending raises this."""
    app = make_app("redis://:secret@localhost:1/0")

    def send_task(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(app, "send_task", send_task)
    publish(app, view())


def caused(error: Exception, *, cause: BaseException | None = None, context: BaseException | None = None) -> Exception:
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("no"),
        NoPermissionError("no"),
        caused(OperationalError("away"), cause=AuthenticationError("no")),
        caused(OperationalError("away"), context=NoPermissionError("no")),
        caused(OperationalError("away"), context=caused(OSError("away"), cause=AuthenticationError("no"))),
    ],
    ids=["itself", "no leave", "cause", "context", "two behind"],
)
def test_a_refused_password_is_found_behind_what_celery_makes_of_it(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(BrokerRefused, match="refuses the password") as caught:
        failing(monkeypatch, error)
    assert "secret" not in str(caught.value)


def in_a_circle() -> Exception:
    first, second = OperationalError("away"), OSError("away")
    first.__context__ = second
    second.__cause__ = first
    return first


@pytest.mark.parametrize("error", [OSError("away"), caused(OperationalError("away"), cause=OSError("gone")), in_a_circle()])
def test_every_other_failure_is_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(BrokerUnavailable, match="does not take job r:7: away; it is sent again") as caught:
        failing(monkeypatch, error)
    assert "secret" not in str(caught.value)
