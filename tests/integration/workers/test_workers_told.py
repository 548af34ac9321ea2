"""What a real worker tells monitors of Celery: how each message ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, states
from waiting import until
from worker_doubles import RUN, Fleet

from azq.ledger.types import JobState, JobView
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(broker, tmp_path)
    fleet.create_run()
    yield fleet
    fleet.close()


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
        thread.join(10.0)


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
        taken = fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu"))
        assert fleet.ledger.claim(taken.job.job_id, 1, "somebody else", 30.0)
        fleet.publish(taken)
        assert task_of(state, taken).state == states.REVOKED, "refused, neither a success nor started for ever"
        assert task_of(state, done).state == states.SUCCESS
    assert fleet.client.hlen("azq.unacked") == fleet.client.llen("azq.eval.cpu") == 0, "acknowledged, each of them"
    assert "Traceback" not in fleet.log(), "what is expected needs none"
