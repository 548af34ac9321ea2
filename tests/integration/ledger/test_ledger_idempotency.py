"""Requests sent twice have their effect once: the same promises of the double and of a real server, and races on the real one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ledger_worlds import record
from memory_broker import MemoryBus, MemoryLedger
from waiting import PATIENCE_S

from azq.errors import KeyReused, NotFound, StateConflict
from azq.ledger import Ledger
from azq.ledger.types import KEPT_ENDED_JOBS, ONCE_LIFE_S, JobState, RequestKey, RunState
from azq.wire import keys
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job

JOB = RequestKey.of("POST /v1/jobs", "k", b"body")
OTHER = RequestKey.of("POST /v1/jobs", "k", b"another body")


@pytest.fixture
def ledger() -> Ledger:
    return MemoryLedger(MemoryBus())


def test_the_first_answer_comes_again_whatever_became_of_the_job(ledger: Any) -> None:
    ledger.create_run(record("r"))
    assert ledger.first_job("r", JOB) is None
    first, replayed = ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu", games=3, payload=b"p"))
    assert not replayed
    lease = ledger.claim(first.job.job_id, 1, "w", 10.0)
    ledger.release(lease, [])
    for _ in range(KEPT_ENDED_JOBS + 1):
        ledger.cancel(ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id)
    with pytest.raises(NotFound):
        ledger.job(first.job.job_id)
    assert ledger.first_job("r", JOB) == first
    assert ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu", games=3, payload=b"p")) == (first, True)
    assert ledger.jobs("r") == []


def test_another_body_under_the_same_key_changes_nothing_not_even_in_another_run(ledger: Any) -> None:
    ledger.create_run(record("r"))
    ledger.create_run(record("s"))
    ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu"))
    for run in ("r", "s"):
        with pytest.raises(KeyReused, match="another body"):
            ledger.enqueue_once(OTHER, Job("", run, Kind.SELFPLAY, "cpu"))
        with pytest.raises(KeyReused):
            ledger.first_job(run, OTHER)
    with pytest.raises(KeyReused):
        ledger.create_run_once(record("t"), OTHER)
    assert len(ledger.jobs()) == 1
    assert [view.record.run for view in ledger.runs()] == ["r", "s"]


def test_a_request_that_failed_leaves_its_key_free_for_the_same_request(ledger: Any) -> None:
    with pytest.raises(NotFound):
        ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu"))
    ledger.create_run(record("r"))
    view, replayed = ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu"))
    assert (view.state, replayed) == (JobState.QUEUED, False)


def test_a_run_is_created_once_under_its_key_and_never_twice_by_name(ledger: Any) -> None:
    once = RequestKey.of("POST /v1/runs", "k", b"body")
    first, replayed = ledger.create_run_once(record("r"), once)
    assert not replayed
    ledger.set_run_state("r", RunState.PAUSED, "lunch")
    again, replayed = ledger.create_run_once(record("r"), once)
    assert (again.state, again.record, again.reason, again.changed_ms, replayed) == (
        RunState.RUNNING,
        first.record,
        "",
        first.changed_ms,
        True,
    )
    assert ledger.first_run("r", once) is not None
    with pytest.raises(StateConflict):
        ledger.create_run_once(record("r"), RequestKey.of("POST /v1/runs", "k2", b"body"))
    assert ledger.run("r").state is RunState.PAUSED


def test_many_senders_of_one_request_make_one_job(broker: Any) -> None:
    """Half of them under the same body, half under another: one body wins, its senders all get the same job."""
    ledgers = [Ledger(connect(broker.control_url)) for _ in range(8)]
    ledgers[0].create_run(record("r"))
    for number in range(40):
        gate = threading.Barrier(len(ledgers))
        key = f"key {number}"

        def send(index: int, key: str = key, gate: threading.Barrier = gate) -> Any:
            once = RequestKey.of("POST /v1/jobs", key, b"even" if index % 2 == 0 else b"odd")
            gate.wait(PATIENCE_S)
            try:
                return ledgers[index].enqueue_once(once, Job("", "r", Kind.SELFPLAY, "cpu"))
            except KeyReused:
                return None

        with ThreadPoolExecutor(len(ledgers)) as pool:
            answers = list(pool.map(send, range(len(ledgers))))
        won = [answer for answer in answers if answer is not None]
        assert len(won) == len(ledgers) // 2
        assert len({view.job.job_id for view, _ in won}) == 1
        assert [replayed for _, replayed in won].count(False) == 1
        assert {index % 2 for index, answer in enumerate(answers) if answer is not None} in ({0}, {1})
    assert len(ledgers[0].jobs("r")) == 40


def test_a_sender_that_died_between_the_two_steps_blocks_nobody(ledger: Any) -> None:
    ledger.create_run(record("r"))
    ledger.client.set(keys.pinned(JOB.key), f"r {JOB.fingerprint}", ex=60)  # what is left of it
    with pytest.raises(KeyReused):
        ledger.enqueue_once(OTHER, Job("", "r", Kind.SELFPLAY, "cpu"))
    view, replayed = ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu"))
    assert not replayed
    assert ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu")) == (view, True)


def test_everything_kept_for_a_key_ends_within_a_day(broker: Any) -> None:
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(record("r"))
    ledger.enqueue_once(JOB, Job("", "r", Kind.SELFPLAY, "cpu"))
    for name in (keys.pinned(JOB.key), keys.once("r", JOB.key)):
        assert 0 < client.ttl(name) <= ONCE_LIFE_S
    client.close()
