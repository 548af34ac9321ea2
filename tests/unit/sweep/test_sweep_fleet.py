"""Runs of a fleet over a daemon's REST interface with doubles behind it: spread over tags, left, taken up again, told to its dashboard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from azq.bus.memory import MemoryBus
from azq.client import Client
from azq.config import Config, DaemonConfig
from azq.errors import AzqError, ConfigError, DaemonUnavailable, ExitCode, StateConflict
from azq.ledger import MemoryLedger
from azq.ledger.types import RunState
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import GradeResult, Heartbeat, LearnerStatus, WeightEvent
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.health import Health

pytest.importorskip("optuna")

from azq.sweep import fleet, shown
from azq.sweep.plan import StudyPlan
from azq.sweep.sweep import sweep
from azq.sweep.trial import TrialFailed


class Away:
    """A daemon that can be away, in front of one that is not."""

    def __init__(self, site: TestClient) -> None:
        self._site = site
        self.away = 0  # requests that nobody answers, from now on

    def request(self, *args: Any, **kwargs: Any) -> Any:
        if self.away:
            self.away -= 1
            raise httpx2.ConnectError("refused")
        kwargs.pop("timeout")
        return self._site.request(*args, **kwargs)


class World:
    """A daemon, what its runs come to, and a client of it."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        services = Services(self.ledger, self.bus, DaemonConfig(), Health(), Path("runs"), lambda: ["tic_tac_toe"])
        self.door = Away(TestClient(create_app(services), base_url="http://127.0.0.1"))
        self.client = Client("http://127.0.0.1", http=self.door, sleep=lambda s: None)  # type: ignore[arg-type]
        for tag in ("cpu", "cuda"):
            beat = Heartbeat("selfplay", f"w@{tag}", "h", 7, "0", 3, 0, 0, queues=(f"selfplay.{tag}",))
            self.bus.put(keys.beat(beat.worker), encode(beat), life_s=60)

    def learn(self, run: str, loss: float) -> None:
        """A learner's word."""
        empty = dict.fromkeys(LearnerStatus.__struct_fields__[:14], 0)
        status = LearnerStatus(**{**empty, "stall_selfplay": False, "waiting": False, "step": 9, "loss_policy": loss, "progress": 1.0})  # type: ignore[arg-type]
        self.bus.put(keys.learner_status(run), encode(status), life_s=60)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(fleet, "LOOK_S", 0.01)
    return World()


def plan(**given: Any) -> StudyPlan:
    space = {"learner.learning_rate": {"low": 0.001, "high": 0.1, "log": True}}
    fixed: dict[str, Any] = {"name": "f", "game": "tic_tac_toe", "trials": 4, "metric": "loss", "until": "games=50", "where": "fleet"}
    return StudyPlan(**{**fixed, "tags": ["cpu", "cuda"], "space": space, **given})


def runs_of(world: World, folder: Path, said: list[str], given: StudyPlan | None = None) -> fleet.FleetRuns:
    return fleet.FleetRuns(given or plan(), Config(home=folder), world.client, folder, said.append)


def playing(world: World, runs: fleet.FleetRuns, act: Callable[[str], None]) -> None:
    """Lets `act` do to each run what a fleet does, once it is created."""
    take_up = runs.take_up

    def acted(name: str, chosen: Any) -> str:
        tag = take_up(name, chosen)
        act(name)
        return tag

    runs.take_up = acted  # type: ignore[method-assign]


def test_runs_go_to_the_tag_that_has_fewest_and_are_told_to_the_dashboard(world: World, tmp_path: Path) -> None:
    said: list[str] = []
    runs, both = runs_of(world, tmp_path, said, plan(at_once=2)), threading.Barrier(2, timeout=30)

    def done(name: str) -> None:
        both.wait()
        world.learn(name, 0.1 * int(name[-1]))
        world.ledger.set_run_state(name, RunState.FINISHED)

    playing(world, runs, done)
    runs.check()
    study = sweep(runs.plan, tmp_path, said.append, runs, shown.Shown(runs.plan, world.client, said.append).show)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    tags = [world.client.run(f"f-000{number}").sections["run"]["tag"] for number in range(4)]
    assert sorted(tags[:2]) == sorted(tags[2:]) == ["cpu", "cuda"]
    told = world.client.study("f")
    assert [row.state for row in told.trials] == ["complete"] * 4
    assert told.best is not None
    assert told.best.number == 0


def test_a_study_that_is_left_pauses_its_runs_and_takes_them_up_again(world: World, tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    first = runs_of(world, tmp_path, said, plan(trials=1))
    playing(world, first, interrupt)
    with pytest.raises(KeyboardInterrupt):
        sweep(first.plan, tmp_path, said.append, first)
    world.ledger.set_run_state("f-0000", RunState.PAUSED)
    again = runs_of(world, tmp_path, said, plan(trials=1))

    def finish(name: str) -> None:
        assert world.client.run(name).state is RunState.RUNNING
        world.learn(name, 0.5)
        world.client.finish_run(name)

    playing(world, again, finish)
    study = sweep(again.plan, tmp_path, said.append, again)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"]
    assert len(list(world.client.runs())) == 1


def test_a_run_is_paused_when_it_is_left_and_finished_when_it_is_worth_no_more(world: World, tmp_path: Path) -> None:
    run = runs_of(world, tmp_path, []).open(3, {"learner.learning_rate": 0.01})
    looks = run.statuses()
    next(looks)
    run.end()
    assert world.client.run("f-0003").state is RunState.FINISHED
    assert next(looks).state is RunState.FINISHED
    assert list(looks) == []
    other = runs_of(world, tmp_path, []).open(4, {"learner.learning_rate": 0.01})
    looks = other.statuses()
    next(looks)
    other.leave()
    assert world.client.run("f-0004").state is RunState.PAUSED
    assert list(looks) == []


def test_a_daemon_that_is_away_is_waited_for(world: World, tmp_path: Path) -> None:
    said: list[str] = []
    looks = runs_of(world, tmp_path, said).open(0, {"learner.learning_rate": 0.01}).statuses()
    next(looks)
    world.door.away = 9
    assert next(looks).run == "f-0000"
    assert len(said) == 1
    assert "waiting, run f-0000 goes on" in said[0]
    world.door.away = 100
    with pytest.raises(DaemonUnavailable):
        runs_of(world, tmp_path, said).check()


def test_the_last_evaluation_is_waited_for(world: World, tmp_path: Path) -> None:
    run = runs_of(world, tmp_path, [], plan(metric="errors")).open(0, {"learner.learning_rate": 0.01})
    looks = run.statuses()
    next(looks)
    world.bus.publish(keys.weights("f-0000"), encode(WeightEvent("f-0000", 2, "0", "file:x", 5, 0)))
    world.client.finish_run("f-0000")
    assert next(looks).strength.error_share is None
    world.bus.publish(keys.results("f-0000"), encode(GradeResult(2, 8, 10, 1, 0)))
    assert [status.strength.error_share for status in looks][-1] == 0.1


def test_a_run_without_a_learner_is_told_once_where_no_broker_is_known(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LEARNER_AFTER_S", 0.0)
    said: list[str] = []
    looks = runs_of(world, tmp_path, said).open(0, {"learner.learning_rate": 0.01}).statuses()
    for _ in range(4):
        next(looks)
    assert len(said) == 1
    assert "azq learner --run f-0000" in said[0]


def test_a_learner_that_no_restart_mends_fails_its_trial_and_ends_its_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LEARNER_AFTER_S", 0.0)
    monkeypatch.setattr(fleet, "resolve", lambda config: config)
    monkeypatch.setattr(fleet, "AZQ", (sys.executable, "-c", f"import sys; print('no such device'); sys.exit({int(ExitCode.CONFIG)})"))
    said: list[str] = []
    run = runs_of(world, tmp_path, said).open(0, {"learner.learning_rate": 0.01})
    with pytest.raises(TrialFailed, match="no such device"):
        list(run.statuses())
    assert world.client.run("f-0000").state is RunState.FINISHED
    assert "one is started here" in said[0]


def test_what_cannot_be_is_one_line_before_any_run(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no live worker takes the tag 'jarvis'.*azq worker.*selfplay.cpu, selfplay.cuda"):
        runs_of(world, tmp_path, [], plan(tags=["jarvis"])).check()
    runs = runs_of(world, tmp_path, [])
    runs.take_up("f-0000", {"learner.learning_rate": 0.01})
    with pytest.raises(StateConflict, match="give the study another name"):
        runs.take_up("f-0000", {"learner.learning_rate": 0.02})
    with pytest.raises(AzqError, match="no study x is known"):
        world.client.study("x")
