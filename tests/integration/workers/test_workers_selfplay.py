"""Real Celery workers against a real broker: slices, stops, kills, fencing; the ledger balances every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from celery import Celery

from azq.bus.connect import connect
from azq.bus.redis import RedisBus
from azq.config import RunConfig, RunSections, SearchConfig, SelfPlayConfig, dump_run
from azq.errors import LeaseLost
from azq.ledger import Ledger
from azq.ledger.types import JobState, JobView
from azq.queue import make_app, publish
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat, RunRecord, SampleEvent

ROOT = Path(__file__).parents[3]
RUN = "toe"
LEASE_S = 1.5


def until(condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
    """Polls until the condition holds; fails by name when it does not."""
    pause, deadline = threading.Event(), time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        pause.wait(0.02)
    return value


class Fleet:
    """A run, its ledger and some worker processes."""

    def __init__(self, broker: Any, tmp_path: Path) -> None:
        self.client: redis.Redis = connect(broker.control_url)
        self.bus = RedisBus(self.client)
        self.ledger = Ledger(self.client)
        self.app: Celery = make_app(broker.control_url)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._tmp_path = tmp_path
        self._env = {
            **os.environ,
            "AZQ_BROKER__CONTROL_URL": broker.control_url,
            "AZQ_BROKER__DATA_URL": broker.data_url,
            "AZQ_DAEMON__LEASE_S": str(LEASE_S),
            "AZQ_WORKER__HEARTBEAT_S": "0.2",
            "AZQ_WORKER__HEARTBEAT_LIFE_S": "2",
            "AZQ_HOME": str(tmp_path),
        }

    def create_run(self, simulations: int = 16) -> None:
        sections = RunSections(
            run=RunConfig(game="tic_tac_toe", seed=3),
            search=SearchConfig(num_simulations=simulations),
            selfplay=SelfPlayConfig(evaluator="uniform", games_in_flight=16, journal_s=0.1),
        )
        self.ledger.create_run(RunRecord(RUN, msgspec.json.encode(dump_run(sections)), {}, str(self._tmp_path), 0))

    def start(self, queues: str = "selfplay.cpu,eval.cpu") -> subprocess.Popen[bytes]:
        code = "import sys; from azq.config import load; from workers.lifecycle import run_worker; "
        code += f"sys.exit(run_worker(load(), {queues.split(',')!r}, 1))"
        log = (self._tmp_path / f"worker{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen([sys.executable, "-c", code], env=self._env, cwd=ROOT, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._tmp_path.glob("worker*.log")))

    def send(self, slice_s: float, games: int = 16) -> JobView:
        view = self.ledger.enqueue(RUN, "selfplay", "cpu", games=games, slice_s=slice_s)
        self.publish(view)
        return view

    def publish(self, view: JobView) -> None:
        publish(self.app, view)
        self.ledger.mark_published(view.job.job_id, view.attempt)

    def finished(self) -> int:
        return self.ledger.counts(RUN).finished

    def playing(self) -> int:
        """The child's process id once a job is played, from its lease."""
        until(lambda: self.finished() > 20, "finished game")
        (view,) = [view for view in self.ledger.jobs(RUN) if view.state is JobState.LEASED]
        return int(view.owner.rsplit(":", 1)[1])

    def beats(self) -> list[Heartbeat]:
        return [decode(frame, Heartbeat) for frame in self.bus.values(keys.BEAT_PREFIX).values()]

    def balanced(self) -> bool:
        """Every sum holds, no game came twice, and what is open is in the pool."""
        counts = self.ledger.counts(RUN)
        uids = [decode(entry.frame, SampleEvent).record.uid for entry in self.bus.after(keys.samples(RUN), "0", count=1_000_000)]
        assert len(uids) == len(set(uids)) == counts.finished
        assert counts.balanced
        return counts.open == self.bus_pool()

    def bus_pool(self) -> int:
        length: Any = self.client.llen(keys.pool(RUN))
        return int(length)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.app.close()
        self.client.close()


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(broker, tmp_path)
    fleet.create_run()
    yield fleet
    fleet.close()


def test_a_job_is_played_for_its_slice_and_its_games_go_back(fleet: Fleet) -> None:
    fleet.start()
    view = fleet.send(slice_s=1.0)
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "end of the job")
    assert fleet.finished() > 50
    assert fleet.ledger.counts(RUN).open <= 16
    assert fleet.balanced()
    assert "torch" not in fleet.log()


def test_the_main_process_beats_while_its_child_is_busy(fleet: Fleet) -> None:
    fleet.start()
    fleet.send(slice_s=30.0)
    fleet.playing()
    until(lambda: [beat for beat in fleet.beats() if beat.rates.get("games_per_s", 0) > 1], "heartbeat with rates")
    (beat,) = fleet.beats()
    assert beat.role == "selfplay"
    assert beat.queues == ("eval.cpu", "selfplay.cpu")
    assert "cpu" in beat.tags
    assert beat.slots == 1
    assert beat.pid == fleet.processes[0].pid
    assert beat.rates["simulations_per_s"] > beat.rates["games_per_s"]
    assert beat.rates["mean_batch"] > 1
    assert RUN in beat.weight_versions


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_stopped_worker_gives_its_games_back_at_once(fleet: Fleet, number: signal.Signals) -> None:
    process = fleet.start()
    view = fleet.send(slice_s=300.0)
    fleet.playing()
    asked = time.monotonic()
    process.send_signal(number)
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "release of the games", 5.0)
    assert time.monotonic() - asked < 2.0
    assert process.wait(10.0) == 0
    assert fleet.balanced()
    assert fleet.beats() == []


@pytest.mark.parametrize("victim", ["child", "main"])
def test_after_a_kill_another_worker_adopts_the_games(fleet: Fleet, victim: str) -> None:
    process = fleet.start()
    view = fleet.send(slice_s=300.0)
    child = fleet.playing()
    os.kill(child if victim == "child" else process.pid, signal.SIGKILL)
    if victim == "child":
        process.kill()  # its next child would be the one to adopt
    process.wait()
    until(lambda: fleet.ledger.expire(RUN, 4), "end of the dead worker's lease")
    before = fleet.ledger.counts(RUN)
    assert fleet.balanced()
    again = fleet.ledger.job(view.job.job_id)
    assert (again.state, again.attempt) == (JobState.QUEUED, 2)
    survivor = fleet.start()
    fleet.publish(again)
    until(lambda: fleet.finished() > before.finished + 20, "game finished by the survivor")
    survivor.terminate()
    assert survivor.wait(10.0) == 0
    after = fleet.ledger.counts(RUN)
    assert after.open <= 16
    assert after.abandoned == 0
    assert fleet.balanced()


def test_a_worker_survives_its_killed_child(fleet: Fleet) -> None:
    process = fleet.start()
    fleet.send(slice_s=300.0)
    os.kill(fleet.playing(), signal.SIGKILL)
    until(lambda: fleet.ledger.expire(RUN, 4), "end of the dead child's lease")
    for view in fleet.ledger.jobs(RUN):
        fleet.publish(view)
    before = fleet.finished()
    until(lambda: fleet.finished() > before + 20, "game finished by the next child")
    process.terminate()
    assert process.wait(10.0) == 0
    assert fleet.balanced()


def test_a_stale_or_doubled_message_is_not_played(fleet: Fleet) -> None:
    process = fleet.start()
    view = fleet.send(slice_s=300.0)
    fleet.start()
    fleet.playing()
    publish(fleet.app, view)  # Celery duplicates by design
    until(lambda: "claim_refused" in fleet.log(), "refusal")
    assert len([one for one in fleet.ledger.jobs(RUN) if one.state is JobState.LEASED]) == 1
    for worker in fleet.processes:
        worker.terminate()
    assert [worker.wait(10.0) for worker in fleet.processes] == [0, 0]
    assert process.returncode == 0
    assert fleet.balanced()


def test_a_frozen_worker_whose_lease_was_taken_over_commits_nothing(fleet: Fleet) -> None:
    fleet.start()
    view = fleet.send(slice_s=300.0)
    child = fleet.playing()
    os.kill(child, signal.SIGSTOP)
    until(lambda: fleet.ledger.expire(RUN, 4), "end of the frozen worker's lease")
    taken = fleet.ledger.claim(view.job.job_id, 2, "somebody else", 30.0)
    assert taken is not None
    adopted = fleet.ledger.adopt(taken, 16)
    before = fleet.finished()
    os.kill(child, signal.SIGCONT)
    until(lambda: "lease_lost" in fleet.log(), "word of the lost lease")
    assert fleet.finished() == before
    assert fleet.ledger.counts(RUN).open == len(adopted)
    fleet.ledger.release(taken, [])
    assert fleet.balanced()
    with pytest.raises(LeaseLost):
        fleet.ledger.renew(taken)


def test_a_run_that_this_azq_cannot_read_fails_its_job_by_name(fleet: Fleet) -> None:
    fleet.ledger.update_run(RunRecord(RUN, b'{"run": {"game": "checkers"}}', {}, "", 0))
    fleet.start()
    view = fleet.send(slice_s=1.0)
    until(lambda: fleet.ledger.job(view.job.job_id).error, "reason of the failure")
    assert "checkers" in fleet.ledger.job(view.job.job_id).error
    assert "Traceback" not in fleet.log()
    assert fleet.balanced()
