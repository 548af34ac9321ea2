"""Real Celery workers against a real broker: slices, stops, a child that hangs; the ledger balances every time."""

from __future__ import annotations

import os
import signal

import pytest
from waiting import PATIENCE_S, until
from worker_doubles import RUN, Fleet

from azq.ledger.types import JobState, RunState
from azq.wire.messages import RunRecord


@pytest.fixture(autouse=True)
def run(fleet: Fleet) -> None:
    fleet.create_run()


def test_a_job_is_played_for_its_slice_and_the_main_process_beats_while_its_child_is_busy(fleet: Fleet) -> None:
    fleet.start()
    view = fleet.send(slice_s=1.0)
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "end of the job")
    assert fleet.ledger.counts(RUN).open <= 16
    assert fleet.balanced()
    busy = fleet.send(slice_s=300.0)
    until(lambda: [beat for beat in fleet.beats() if beat.rates.get("games_per_s", 0) > 1], "heartbeat with rates")
    (beat,) = fleet.beats()
    assert (beat.role, beat.queues, beat.slots, beat.pid) == ("selfplay", ("eval.cpu", "selfplay.cpu"), 1, fleet.processes[0].pid)
    assert "cpu" in beat.tags
    (served,) = [line for line in fleet.log().splitlines() if "serving" in line]
    assert "selfplay.cpu" in served
    assert "concurrency=1" in served
    assert "@" not in served
    assert beat.rates["simulations_per_s"] > beat.rates["games_per_s"]
    assert beat.rates["mean_batch"] > 1
    assert beat.rates["exact_simulations_per_s"] > 0
    assert beat.rates["cache_lookups_per_s"] >= beat.rates["cache_hits_per_s"] > 0
    assert RUN in beat.weight_versions
    fleet.ledger.update_run(RunRecord(RUN, b'{"run": {"game": "checkers"}}', {}, "", 0))
    unread = fleet.send(slice_s=1.0)
    fleet.ledger.cancel(busy.job.job_id)
    until(lambda: fleet.ledger.job(unread.job.job_id).error, "reason of the failure")
    assert "checkers" in fleet.ledger.job(unread.job.job_id).error
    assert "torch" not in fleet.log()
    assert "Traceback" not in fleet.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_a_stopped_worker_gives_its_games_back_at_once(fleet: Fleet, number: signal.Signals) -> None:
    process = fleet.start()
    view = fleet.send(slice_s=3600.0)  # far beyond what is waited for
    child = fleet.playing()
    if number is signal.SIGHUP:
        os.kill(child, number)  # a terminal says it to both
    process.send_signal(number)
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "release of the games")
    assert process.wait(PATIENCE_S) == 0
    assert fleet.balanced()
    assert fleet.beats() == []


@pytest.mark.release
def test_a_child_that_hangs_while_it_waits_takes_no_job_into_its_grave(fleet: Fleet) -> None:
    worker = fleet.start()
    fleet.send(slice_s=300.0)
    child = fleet.playing()
    fleet.ledger.set_run_state(RUN, RunState.PAUSED)
    until(lambda: all(view.state is not JobState.LEASED for view in fleet.ledger.jobs(RUN)), "end of the slice")
    os.kill(child, signal.SIGSTOP)
    fleet.ledger.set_run_state(RUN, RunState.RUNNING)
    before = fleet.finished()
    fleet.send(slice_s=300.0)  # into the pipe of the process that hangs
    until(lambda: fleet.finished() > before + 20, "games by the next child")
    assert "pool_child_hung" in fleet.log()
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
