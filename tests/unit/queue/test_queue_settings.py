"""What Celery is told: each setting that a promise rests on, by its value."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from typing import Any

import pytest
import structlog
from celery import current_app
from kombu import compression
from kombu.transport import redis as kombu_redis
from redis import exceptions

from azq import queue
from azq.queue import make_app

URL = "redis://localhost:1/0"


@pytest.mark.parametrize(
    ("why", "settings"),
    [
        ("a job whose worker dies is delivered again", {"task_acks_late": True}),
        (
            "a job that fails, or kills its process, is tried again by the ledger alone",
            {"task_acks_on_failure": True, "task_acks_on_timeout": True, "task_reject_on_worker_lost": False},
        ),
        ("a worker holds no message that it does not work on", {"worker_prefetch_multiplier": 1, "worker_disable_prefetch": True}),
        (
            "the ledger is the record, so nothing is kept here, but it is told where a job was sent",
            {"task_ignore_result": True, "task_send_sent_event": True},
        ),
        ("messages are data, never code", {"task_serializer": "msgpack", "accept_content": ["msgpack"], "event_serializer": "json"}),
        ("a job sees its end a minute before its process is killed", {"task_time_limit": 900, "task_soft_time_limit": 840}),
        (
            "a publisher tries twice, at once",
            {
                "task_publish_retry": True,
                "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0},
            },
        ),
        (
            "a worker outlives its broker and keeps its job",
            {
                "broker_connection_retry_on_startup": True,
                "broker_connection_max_retries": None,
                "worker_cancel_long_running_tasks_on_connection_loss": False,
            },
        ),
        (
            "a worker that is stopped hands its games back, a worker's memory is given back, and its log is ours",
            {"worker_soft_shutdown_timeout": 10.0, "worker_max_tasks_per_child": 50, "worker_hijack_root_logger": False},
        ),
        ("a worker tells the daemon what it does", {"worker_send_task_events": True}),
        ("nobody changes a worker over the broker", {"worker_enable_remote_control": False}),
    ],
)
def test_what_rests_on_a_setting(why: str, settings: dict[str, object]) -> None:
    conf = make_app(URL).conf
    assert {key: conf[key] for key in settings} == settings, why


def test_a_message_is_invisible_for_longer_than_its_job_may_run_and_is_looked_for_often() -> None:
    options = make_app(URL).conf.broker_transport_options
    assert {key: options[key] for key in ("visibility_timeout", "unacked_restore_interval", "unacked_restore_throttle")} == {
        "visibility_timeout": 1800,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
    }
    conf = make_app(URL).conf
    assert 0 < conf.task_soft_time_limit < conf.task_time_limit < options["visibility_timeout"]


def test_four_priorities_are_kept_apart_and_taken_in_their_order() -> None:
    options = make_app(URL).conf.broker_transport_options
    assert (options["queue_order_strategy"], options["priority_steps"]) == ("priority", [0, 3, 6, 9])


def test_no_process_waits_for_ever_on_a_broker_that_says_nothing() -> None:
    options = make_app(URL).conf.broker_transport_options
    assert (options["socket_connect_timeout"], options["socket_timeout"], options["health_check_interval"]) == (5, 8.0, 25)
    assert options["socket_keepalive"] is True
    assert options["socket_keepalive_options"]
    assert make_app(URL, socket_timeout_s=0.5).conf.broker_transport_options["socket_timeout"] == 0.5
    assert "socket_keepalive_options" not in make_app("unix:///run/azq.sock").conf.broker_transport_options


def test_an_app_is_nobodys_default() -> None:
    assert make_app(URL) is not current_app._get_current_object()


class DeadChannel:
    """The broker is away."""

    unacked_key, unacked_index_key, do_restore = "unacked", "unacked_index", False

    def conn_or_acquire(self, client: object = None) -> contextlib.AbstractContextManager[object]:
        raise ConnectionError("away")


@pytest.mark.parametrize("tell", ["ack", "reject"])
def test_a_worker_whose_broker_is_away_when_a_job_ends_takes_another_one_later(tell: str) -> None:
    channel: Any = kombu_redis.Channel
    qos = channel.QoS(DeadChannel(), prefetch_count=1)
    qos._quick_append("one", object())
    assert not qos.can_consume()
    with pytest.raises(ConnectionError, match="away"):
        getattr(qos, tell)("one")
    assert qos.can_consume()


def test_a_message_that_is_refused_is_dropped_unless_it_is_asked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    channel: Any = kombu_redis.Channel
    qos = channel.QoS(DeadChannel(), prefetch_count=1)
    back: list[str] = []
    monkeypatch.setattr(qos, "restore_by_tag", lambda tag, **_: back.append(tag))
    for tag, how in (("one", {}), ("two", {"requeue": True})):
        qos._quick_append(tag, object())
        with contextlib.suppress(ConnectionError):
            qos.reject(tag, **how)
    assert back == ["two"]


def test_a_broker_that_takes_no_writes_for_a_while_ends_no_worker() -> None:
    app = make_app("redis://localhost:1/0")
    assert app.conf.broker_channel_error_retry
    passing = (exceptions.ReadOnlyError, exceptions.OutOfMemoryError, exceptions.ResponseError, exceptions.ExecAbortError)
    assert all(issubclass(error, app.connection().channel_errors) for error in passing)


def test_no_message_is_unpacked_and_one_taken_before_is_read_with_the_same_care() -> None:
    with pytest.raises(KeyError):
        compression.decompress(zlib.compress(b"x"), "application/x-gzip")
    properties = {"delivery_tag": "t", "delivery_info": {}, "body_encoding": "base64"}
    job = {"body": "", "headers": {"task": "azq.eval"}, "properties": properties}
    assert queue.read_message(json.dumps([job, "eval.cpu", "eval.cpu"])) == [job, "eval.cpu", "eval.cpu"]
    (refused, *rest) = queue.read_message(json.dumps([job | {"body": "A" * (queue.MOST_BODY + 4)}, "eval.cpu", "eval.cpu"]))
    assert (refused["body"], refused["headers"], rest) == ("", {}, ["eval.cpu", "eval.cpu"])
    assert queue.read_message("[" * 100_000)["headers"] == {}


PROPERTIES = {"delivery_tag": "t", "delivery_info": {}, "body_encoding": "base64"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"body": "A" * queue.MOST_BODY, "headers": {"task": "azq.eval"}, "properties": PROPERTIES}, ""),
        ({"body": "A" * (queue.MOST_BODY + 4), "headers": {"task": "azq.eval"}, "properties": PROPERTIES}, "its body has 4100 characters"),
        ({"body": "A" * (queue.MOST_BODY + 4), "headers": {}, "properties": PROPERTIES}, ""),
        ({"body": "AAA", "headers": {}, "properties": PROPERTIES}, "its body is not in base64"),
        ({"body": "", "headers": {}, "properties": PROPERTIES | {"body_encoding": "none"}}, "its body is not in base64"),
        ({"body": "", "headers": {"compression": "x"}, "properties": PROPERTIES}, "it is compressed"),
        ({"event": "task-sent"}, ""),
        ({"method": "ping"}, ""),
        ({"event": 1}, "it is no message of Celery"),
        ([1, 2], "it is no message of Celery"),
    ],
)
def test_what_is_no_message_of_azqs_is_named(message: Any, reason: str) -> None:
    with structlog.testing.capture_logs() as lines:
        found = queue.read_message(json.dumps(message))
    assert [line["reason"] for line in lines] == [reason] * bool(reason)
    assert (found == message) == (not reason)


def test_a_text_may_be_as_long_as_the_limit() -> None:
    room = queue.MOST_TEXT - len(json.dumps({"event": ""}))
    assert queue.read_message(json.dumps({"event": "x" * room})) == {"event": "x" * room}
    assert queue.read_message(json.dumps({"event": "x" * (room + 1)}))["headers"] == {}
    assert queue.MOST_TEXT == 262_144


def test_variables_of_another_celery_application_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere:1/0")
    assert "elsewhere" not in make_app("redis://localhost:1/0").connection().as_uri()
    assert "CELERY_BROKER_URL" not in os.environ
