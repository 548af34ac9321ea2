"""`azq doctor`: what is found wrong, and the one setting that a run hangs on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import heartbeat
from typer.testing import CliRunner

from azq.cli.app import app
from azq.config import Config, RunSections, load
from azq.console.doctor import SpeedFacts, SpeedReport, bottleneck, examine, judge_devices, judge_workers
from azq.console.profile import profile_of
from azq.host.brokers import Brokers
from azq.host.devices import Machine, remember
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.process.cards import Gpu
from azq.status.conditions import CrashLoop
from azq.status.summary import RunFacts, summarise
from azq.wire.messages import Heartbeat, LearnerStatus, RunRecord


def settings(folder: Path, *overrides: str) -> Config:
    return load(None, [f'home="{folder}"', *overrides])


def verdicts(config: Config) -> dict[str, str]:
    return {check.rule: check.severity for check in examine(config)}


def beat(role: str, run: str = "", **more: Any) -> Heartbeat:
    return heartbeat(role, f"{role}@h:1", run=run, **more)


def view(name: str, state: RunState = RunState.RUNNING) -> RunView:
    return RunView(RunRecord(name, b"{}", {}, "", 0), state, "", 0, 0)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_folder_is_sound_and_told_how_to_begin(tmp_path: Path) -> None:
    found = {check.rule: check for check in examine(settings(tmp_path / "runs"))}
    assert {name: check.severity for name, check in found.items()} == {
        "game": "ok", "home": "ok", "rest": "ok", "devices": "ok", "server": "ok", "brokers": "warn",
    }  # fmt: skip
    assert "`azq up` starts them" in found["brokers"].evidence
    assert list(tmp_path.iterdir()) == []


def test_every_broker_is_looked_at_and_a_dead_one_named(tmp_path: Path) -> None:
    config = settings(tmp_path, "broker.data_shards=2")
    with Brokers(config, tmp_path) as running:
        assert verdicts(config) == dict.fromkeys(
            ("game", "home", "rest", "devices", "server", "control", "durable", "data", "data1", "users", "clock", "workers", "weights"),
            "ok",
        ) | {"daemon": "warn"}
        running._servers["data1"].stop()
        found = verdicts(settings(tmp_path))  # which says nothing of a second plane
        assert (found["data"], found["data1"]) == ("ok", "fail")
    assert verdicts(config)["brokers"] == "warn"


@pytest.mark.parametrize(
    ("overrides", "name", "said"),
    [
        (["run.game=connect_five"], "game", "no game is called 'connect_five'"),
        (["daemon.host=0.0.0.0"], "rest", "set daemon.token"),
        (["daemon.host=0.0.0.0", "daemon.token=long-enough"], "rest", "daemon.plaintext = true"),
        (["broker.control_url=redis://127.0.0.1:1/0"], "control", "no broker at redis://127.0.0.1:1/0"),
        (["broker.control_url=http://here"], "control", "is none of unix"),
        (["home=/dev/null"], "home", "is a file"),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_looked_at_all_the_same(tmp_path: Path, overrides: list[str], name: str, said: str) -> None:
    found: dict[str, Any] = {check.rule: check for check in examine(settings(tmp_path, *overrides))}
    assert found[name].severity == "fail"
    assert said in found[name].evidence
    assert all(check.severity != "fail" for other, check in found.items() if other != name)
    assert len(found) >= 4


def test_running_runs_need_players_evaluators_and_a_learner_of_their_own() -> None:
    workers = [beat("selfplay"), beat("inference"), beat("learner", "one")]
    assert [check.severity for check in judge_workers(workers, [view("one"), view("old", RunState.FINISHED)])] == ["ok"]
    (check,) = judge_workers(workers, [view("one"), view("two")])
    assert check.severity == "warn"
    assert "two has no live learner" in check.evidence
    assert "one has" not in check.evidence


def test_who_dies_again_and_again_fails_and_nobody_is_to_start_it() -> None:
    loop = CrashLoop("learner", "box", "one", 4, 190.0, "SIGKILL", "/l.log")
    workers = [beat("selfplay"), beat("inference")]
    (check,) = judge_workers(workers, [view("one")], [loop])
    assert (check.severity, check.evidence) == ("fail", str(loop))
    dying, lacking = judge_workers(workers, [view("one"), view("two")], [loop])
    assert dying == check
    assert "two has no live learner" in lacking.evidence
    assert "one has" not in lacking.evidence


@pytest.mark.parametrize(("overrides", "code"), [([], 0), (["--set", "daemon.host=0.0.0.0"], 2)])
def test_the_exit_code_says_whether_anything_failed(overrides: list[str], code: int) -> None:
    told = CliRunner().invoke(app, ["doctor", "--json", *overrides])
    assert told.exit_code == code
    assert json.loads(told.stdout)["ok"] == (code == 0)


CARDS = (Gpu("cuda:0", "H200", free_bytes=8 << 30, uuid="0"), Gpu("cuda:1", "H200", free_bytes=8 << 30, uuid="1"))
GONE = [("warn", f"cuda:{number} (H200): gone; look") for number in range(2)]
BOX = Machine("box", 16, 64 << 30, ("cpu", "cuda"), CARDS)


@pytest.mark.parametrize(
    ("machine", "overrides", "said"),
    [
        (BOX, [], [("ok", "inference on cuda:0, cuda:1, training on cuda:0")]),
        (replace(BOX, gpus=CARDS[:1]), [], GONE[1:]),
        (replace(BOX, gpus=(), trouble="no driver; install it"), [], [("warn", "GPU: no driver; install it"), *GONE]),
        (replace(BOX, gpus=(CARDS[0], replace(CARDS[1], trouble="busy"))), [], [("warn", "cuda:1: busy")]),
        (BOX, ["inference.device=cuda:2"], [("fail", "cuda:2 is asked for and not there")]),
        (BOX, ["learner.device=cuda:2"], [("fail", "cuda:2 is asked for and not there")]),
        (BOX, ['inference.devices=["cuda:1", "cuda:2"]'], [("warn", "cuda:2: asked for and not there")]),
    ],
)
def test_devices_that_cannot_be_used_are_told(tmp_path: Path, machine: Machine, overrides: list[str], said: list[tuple[str, str]]) -> None:
    remember(tmp_path, BOX)
    found = judge_devices(settings(tmp_path, *overrides), machine)
    assert [check.severity for check in found] == [verdict for verdict, _ in said]
    assert all(text in check.evidence for check, (_, text) in zip(found, said, strict=True))


WAITS = {"phase_wall_idle": 0.9, "phase_wall_backward": 0.1, "phase_cpu_backward": 0.1}
TRAINS = {"phase_wall_idle": 0.02, "phase_wall_backward": 0.9, "phase_wall_load": 0.08, "phase_cpu_backward": 0.9}
SEARCHES = {"phase_wall_search": 0.8, "phase_wall_wait": 0.2, "phase_cpu_search": 0.8}
ASKS = {"phase_wall_search": 0.1, "phase_wall_wait": 0.9, "phase_cpu_search": 0.1}
MOVES = {"phase_wall_search": 0.1, "phase_wall_wait": 0.2, "phase_wall_transport": 0.4, "phase_wall_ledger": 0.3}
EVALUATES = {"phase_wall_forward": 0.9, "phase_wall_idle": 0.1, "phase_cpu_forward": 0.9}
RESTS = {"phase_wall_forward": 0.2, "phase_wall_idle": 0.8, "phase_cpu_forward": 0.2}


def watched(
    plays: dict[str, float],
    evaluates: dict[str, float],
    trains: dict[str, float],
    *,
    stalled: float = 0.0,
    waiting: float = 1.0,
    cores: int | None = 16,
    samples: int = 100_000,
    precision: str = "auto",
    **sections: Any,
) -> SpeedFacts:
    named = {"selfplay": plays, "inference": evaluates, "learner": trains}
    view = RunView(RunRecord("r", b"{}", {}, "runs/r", 0), RunState.RUNNING, "", 0, 0)
    told = LearnerStatus(1, samples, samples, 0, 0, samples, 1.0, 1.0, 1e-3, 1, False, False, 0.0, 0, 0.0)
    status = summarise(RunFacts(view=view, counts=LedgerCounts(0, 0, 0, 0, 0, 0, 0), learner=told), 0)
    profiles = profile_of([[beat(role, "r", rates=shares) for role, shares in named.items()]], "r")
    return SpeedFacts(profiles, stalled, waiting, status, RunSections.model_validate(sections), cores, precision)


@pytest.mark.parametrize(
    ("facts", "part", "key"),
    [
        (watched(ASKS, EVALUATES, WAITS, samples=100), "limiter", "learner.min_window"),
        (watched(ASKS, RESTS, WAITS, stalled=0.4, waiting=0.5), "limiter", "learner.limiter_slack"),
        (watched(SEARCHES, RESTS, WAITS), "search", "worker.concurrency"),
        (watched(SEARCHES, RESTS, WAITS, cores=None), "search", "search.num_simulations"),
        (watched(ASKS, EVALUATES, WAITS), "network", "network.channels"),
        (watched(ASKS, EVALUATES, WAITS, precision="float32"), "network", "inference.precision"),
        (watched(ASKS, EVALUATES, WAITS, selfplay={"cache_entries": 0}), "network", "selfplay.cache_entries"),
        (watched(ASKS, {}, WAITS), "network", "network.channels"),  # each self-play process evaluates for itself
        (watched(ASKS | {"phase_cpu_wait": 0.8}, RESTS, WAITS), "network", "network.channels"),  # though workers wait for others' requests
        (watched(ASKS | {"phase_cpu_wait": 0.8}, RESTS, WAITS, cores=1), "network", "network.channels"),
        (watched(ASKS, RESTS, WAITS), "queue", "selfplay.games_in_flight"),
        (watched(ASKS, RESTS, WAITS, selfplay={"answer_within_ms": 25.0}), "queue", "selfplay.answer_within_ms"),
        (watched(MOVES, RESTS, WAITS), "queue", "selfplay.journal_s"),
        (watched(SEARCHES, EVALUATES, TRAINS, stalled=0.8, waiting=0.0), "learner", "learner.samples_per_insert"),
        (watched(SEARCHES, EVALUATES, TRAINS, waiting=0.1), "learner", "learner.samples_per_insert"),
        (watched(SEARCHES, EVALUATES, TRAINS, waiting=0.0, learner={"threads": 1}), "learner", "learner.threads"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_sync": 0.9}, waiting=0.0), "learner", "learner.sync_every"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_publish": 0.9}, waiting=0.0), "learner", "learner.publish_every_s"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_checkpoint": 0.9}, waiting=0.0), "learner", "learner.checkpoint_every_s"),
        (watched(ASKS, EVALUATES, WAITS, cores=1), "network", "network.channels"),  # full: who takes most
        (watched(SEARCHES, RESTS, WAITS, cores=1), "search", "search.num_simulations"),
        (watched(ASKS, RESTS, {"phase_wall_backward": 0.7, "phase_cpu_backward": 0.7}, cores=1), "learner", "learner.samples_per_insert"),
    ],
)
def test_a_planted_bottleneck_is_named_with_its_setting(facts: SpeedFacts, part: str, key: str) -> None:
    found = bottleneck(facts)
    assert (found.rule, found.setting.key) == (part, key)
    section, name = key.split(".")
    if section not in ("inference", "worker"):  # a host's, not the run's
        assert found.setting.now == getattr(getattr(facts.sections, section), name)
        RunSections.model_validate({section: {name: found.setting.value}})
    assert found.setting.value != found.setting.now
    assert key in str(found)


def test_cores_that_are_full_are_counted_with_whose_they_are() -> None:
    assert "1.1 of 1 cores are at work, 0.9 of them with forward passes" in str(bottleneck(watched(ASKS, EVALUATES, WAITS, cores=1)))


def test_the_verdict_is_told_before_the_table_and_to_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = watched(ASKS, EVALUATES, WAITS)
    report = SpeedReport("r", 20.0, bottleneck(facts), facts)
    monkeypatch.setattr("azq.console.doctor.examine_speed", lambda *_: report)
    text = CliRunner().invoke(app, ["doctor", "--speed"]).output.splitlines()
    assert text[0].startswith("network: the learner waits for games; self-play searches 10% of its time, waits for evaluations 90%")
    assert "inference: 1 process, 0.90 cores" in text
    told = json.loads(CliRunner().invoke(app, ["doctor", "--speed", "--json"]).output)
    assert (told["bottleneck"]["part"], told["bottleneck"]["setting"]["key"]) == ("network", "network.channels")
    assert told["cores_used"]["network"] == 0.9
