"""`azq doctor`: what is found wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import heartbeat
from typer.testing import CliRunner

from azq.cli.app import app
from azq.config import Config, load
from azq.console.doctor import examine, judge_devices, judge_workers
from azq.host.brokers import Brokers
from azq.host.devices import Machine, remember
from azq.ledger.types import RunState, RunView
from azq.process.cards import Gpu
from azq.status.conditions import CrashLoop
from azq.wire.messages import Heartbeat, RunRecord


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
