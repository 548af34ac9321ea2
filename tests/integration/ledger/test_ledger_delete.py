"""What the ledger promises of runs that are deleted, and how it counts what there is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ledger_worlds import event, record

from azq.errors import NotFound, StateConflict
from azq.ledger.types import LedgerLoad, RunState
from azq.wire import keys
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord


def live_a_little(world: Any) -> None:
    """A run with everything: open games, a finished and an abandoned one, a result, queued and ended jobs."""
    lease = world.lease()
    first, second, _ = world.ledger.adopt(lease, 3)
    world.ledger.replace_games(lease, [event(first.uid)], 0)
    world.ledger.abandon(lease, second.uid, "why")
    world.ledger.release(lease, [])
    world.ledger.complete(world.lease(Kind.EVAL), b"result")
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    world.bus.publish(keys.weights("r"), b"weights")
    world.bus.publish(keys.history("r"), b"point")
    world.bus.put(keys.learner_status("r"), b"status", life_s=60)


def left(world: Any) -> set[str]:
    """Names of keys of run r."""
    return {name.decode() for name in world.ledger.client.scan_iter("azq:{r}:*")}


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FINISHED, RunState.FAILED])
def test_a_run_that_rests_is_deleted_with_all_that_is_kept_of_it(world, state):
    live_a_little(world)
    world.ledger.create_run(record("other"))
    seen_ms = world.ledger.run("r").changed_ms
    world.pass_s(1)
    world.ledger.set_run_state("r", state, seen_ms=seen_ms)
    assert left(world)
    world.ledger.delete_run("r")
    assert left(world) == set()
    assert [view.record.run for view in world.ledger.runs()] == ["other"]
    with pytest.raises(NotFound):
        world.ledger.run("r")
    world.ledger.delete_run("r")
    view = world.ledger.create_run(RunRecord("r", b"{}", {}, "folder", 2))
    assert (view.record.created_ms, world.ledger.counts("r").opened) == (2, 0)
    with pytest.raises(StateConflict, match="run r is running by now and cannot become finished"):
        world.ledger.set_run_state("r", RunState.FINISHED, "of the run before", seen_ms)
    assert world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id == "r:1"


def test_a_run_that_works_is_not_deleted(world):
    with pytest.raises(StateConflict, match="run r is running; pause"):
        world.ledger.delete_run("r")
    lease = world.lease()
    world.ledger.set_run_state("r", RunState.PAUSED)
    with pytest.raises(StateConflict, match="w1 still holds a job of run r"):
        world.ledger.delete_run("r")
    assert world.ledger.run("r").state is RunState.PAUSED
    world.ledger.release(lease, [])
    world.ledger.delete_run("r")
    assert world.ledger.runs() == []


def test_one_that_never_was_is_passed_over(world):
    world.ledger.delete_run("zz")
    assert [view.record.run for view in world.ledger.runs()] == ["r"]


def test_a_run_that_is_learned_is_deleted_once_its_learner_has_ended_or_died(world):
    world.ledger.set_run_state("r", RunState.PAUSED)
    world.ledger.take_learner("r", "host:7", 10.0)
    world.pass_s(9.0)
    with pytest.raises(StateConflict, match="host:7 still learns run r; stop it"):
        world.ledger.delete_run("r")
    assert world.ledger.run("r")
    world.pass_s(1.0)
    world.ledger.delete_run("r")
    assert left(world) == set()


def test_load_counts_running_runs_and_jobs_that_did_not_end(world):
    assert world.ledger.load() == LedgerLoad(1, 0)
    lease = world.lease()
    world.ledger.enqueue(Job("", "r", Kind.EVAL, "cpu"))
    world.ledger.create_run(record("other"))
    world.ledger.enqueue(Job("", "other", Kind.EVAL, "cpu"))
    assert world.ledger.load() == LedgerLoad(2, 3)
    world.ledger.release(lease, [])
    world.ledger.set_run_state("other", RunState.PAUSED)
    assert world.ledger.load() == LedgerLoad(1, 2)


def test_every_key_that_lasts_as_long_as_its_run_is_deleted_with_it():
    of_runs = {
        function
        for _, function in inspect.getmembers(keys, inspect.isfunction)
        if list(inspect.signature(function).parameters) == ["name"] and function is not keys.run_prefix and not function("x").endswith(":")
    }
    assert set(keys.OF_RUN) == of_runs
