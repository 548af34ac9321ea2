"""What a real worker tells monitors of Celery: how each message ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, states
from celery.worker.control import Panel
from kombu.exceptions import OperationalError
from waiting import PATIENCE_S, until
from worker_doubles import RUN, Fleet

from azq.config.host import with_user
from azq.errors import BrokerRefused
from azq.ledger.types import JobState, JobView
from azq.queue import make_app, publish
from azq.wire import acl
from azq.wire.codec import encode
from azq.wire.keys import Role
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec
from workers.lifecycle import TELLS


def url_of(broker: Any, role: Role) -> str:
    """The control plane as a role's user reaches it."""
    return with_user(broker.control_url, acl.role_user(role), acl.role_password(broker.control.password, role))


@pytest.fixture(autouse=True)
def run(broker: Any, fleet: Fleet) -> None:
    fleet.create_run()
    fleet.work_as(url_of(broker, "worker"))


@contextlib.contextmanager
def watched(app: Celery) -> Iterator[Any]:
    """Celery's own idea of workers and tasks, from the events that a thread hears; a worker beats before it is given back."""
    state: Any = app.events.State()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": state.event})
        thread = threading.Thread(target=lambda: receiver.capture(wakeup=False), daemon=True)
        thread.start()
        until(lambda: any(worker.alive for worker in state.workers.values()), "event of a worker")
        yield state
        receiver.should_stop = True
        thread.join(PATIENCE_S)


def evaluation(fleet: Fleet, second: str) -> JobView:
    view = fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu", payload=encode(MatchSpec("random", second, 2, 8, 0, 3))))
    fleet.publish(view)
    return view


def task_of(state: Any, view: JobView) -> Any:
    """The task of a job's attempt once it has ended."""
    name = f"{view.job.job_id}:{view.attempt}"
    return until(lambda: (task := state.tasks.get(name)) is not None and task.ready and task, f"end of task {name}")


def test_each_message_ends_as_the_ledger_says_and_none_is_left_or_sent_again(fleet: Fleet) -> None:
    fleet.start()
    with watched(fleet.app) as state:
        done, forbidden, unknown = evaluation(fleet, "random"), evaluation(fleet, "gtp:no-such"), evaluation(fleet, "stockfish")
        assert [task_of(state, view).state for view in (done, forbidden, unknown)] == [states.SUCCESS, states.FAILURE, states.FAILURE]
        ended, again = fleet.ledger.job(forbidden.job.job_id), fleet.ledger.job(unknown.job.job_id)
        assert (ended.state, ended.attempt) == (JobState.FAILED, 1), "the same host forbids the same engine"
        assert task_of(state, forbidden).exception == f"JobFailed({ended.error!r})"
        assert (again.state, again.attempt) == (JobState.QUEUED, 2), "tried again by the ledger"
        assert "stockfish" in again.error
        assert again.error in task_of(state, unknown).exception
        fleet.publish(done)  # Celery may deliver twice
        until(lambda: "claim_refused" in fleet.log(), "refusal of the second message")
        assert "Traceback" not in fleet.log(), "what is expected needs none"
        lost = fleet.send(slice_s=300.0)
        os.kill(fleet.playing(), signal.SIGKILL)
        assert task_of(state, lost).state == states.FAILURE, "its next attempt is another task"
        assert "WorkerLostError" in task_of(state, lost).exception
        until(lambda: fleet.ledger.job(lost.job.job_id).attempt == 2, "end of the lease by the child's parent")
        until(lambda: "pool_child_died" in fleet.log(), "line about the dead child")
        taken = fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu"))
        assert fleet.ledger.claim(taken.job.job_id, 1, "somebody else", 30.0)
        fleet.publish(taken)
        assert task_of(state, taken).state == states.REVOKED, "refused, neither a success nor started for ever"
        assert (task_of(state, done).state, task_of(state, lost).state) == (states.SUCCESS, states.FAILURE)
    assert fleet.client.hlen("azq.unacked") == fleet.client.llen("azq.eval.cpu") == 0, "acknowledged, each of them"


FORBIDDEN: dict[str, dict[str, Any]] = {
    "shutdown": {},
    "pool_grow": {"n": 2},
    "pool_shrink": {"n": 1},
    "pool_restart": {},
    "autoscale": {"max": 4, "min": 3},
    "rate_limit": {"task_name": "azq.eval", "rate_limit": "1/h"},
    "time_limit": {"task_name": "azq.eval", "hard": 1, "soft": 1},
    "add_consumer": {"queue": "selfplay.jarvis"},
    "cancel_consumer": {"queue": "eval.cpu"},
    "revoke": {"task_id": f"{RUN}:1:1", "terminate": True},
    "revoke_by_stamped_headers": {"headers": {"a": "b"}, "terminate": True},
    "terminate": {"signal": "KILL", "task_id": f"{RUN}:1:1"},
    "election": {"id": "1", "topic": "t"},
    "enable_events": {},
    "disable_events": {},
    "heartbeat": {},
    "hello": {"from_node": "another", "revoked": {f"{RUN}:1:1": 1.0}},
    "memsample": {},
    "objgraph": {},
    "report": {},
}


def test_every_command_that_celery_knows_is_told_or_forbidden() -> None:
    known = set(Panel.meta)
    assert known - set(FORBIDDEN) - set(TELLS) <= {"clock", "memdump", "query_task"}, "a new command of Celery's: may it change a worker?"


def test_a_worker_tells_about_itself_and_nobody_changes_it(broker: Any, fleet: Fleet) -> None:
    worker, app = fleet.start(), make_app(url_of(broker, "flower"))
    until(fleet.beats, "heartbeat")
    inspect, password = app.control.inspect(timeout=PATIENCE_S, limit=1), acl.role_password(broker.control.password, "worker")
    told = {command: until(getattr(inspect, command), command) for command in TELLS}
    (name,) = {name for answer in told.values() for name in answer}
    assert told["ping"][name] == {"ok": "pong"}
    assert {queue["name"] for queue in told["active_queues"][name]} == {"selfplay.cpu", "eval.cpu"}
    assert len(told["stats"][name]["pool"]["processes"]) == 1
    assert password not in json.dumps(told)
    assert password not in json.dumps(inspect.conf(with_defaults=True))
    for command, arguments in FORBIDDEN.items():
        (answer,) = app.control.broadcast(command, arguments, reply=True, timeout=PATIENCE_S, limit=1)
        assert f"no command {command!r}" in answer[name]["error"]
    after = {command: getattr(inspect, command)() for command in ("active_queues", "conf", "revoked", "registered")}
    assert after == {command: told[command] for command in after}
    assert inspect.stats()[name]["pool"]["processes"] == told["stats"][name]["pool"]["processes"]
    assert worker.poll() is None
    with pytest.raises(BrokerRefused):
        publish(app, fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu")))
    another = make_app(url_of(broker, "worker"))
    for command, arguments in FORBIDDEN.items():
        with pytest.raises(OperationalError, match="No permissions"):
            another.control.broadcast(command, arguments)
    for own in (app, another):
        own.close()
    assert "Traceback" not in fleet.log()
