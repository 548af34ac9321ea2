"""Commands that rehearse and measure, in the folder and the environment of an operator whose system is live: none of it reaches them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from azq.cli.app import app
from azq.config import Config, load
from azq.parts.lab.sweep.plan import StudyPlan
from azq.parts.lab.sweep.trial import Trial
from azq.parts.lab.validate import validate
from azq.parts.lab.validate.versions import LockstepVersion
from azq.process.apart import alone
from azq.process.start import machine_environment

LIVE = "live-one"
FILE = f"""
home = "/srv/{LIVE}/runs"
[broker]
control_url = "unix:///srv/{LIVE}/control.sock"
data_url = "unix:///srv/{LIVE}/data.sock"
[store]
url = "s3://{LIVE}/weights"
options = {{ key = "{LIVE}-key" }}
[daemon]
port = 4711
token = "{LIVE}-token"
[notices]
webhook = "https://{LIVE}.example/"
[machine]
metadata_url = "http://{LIVE}.example/"
[worker]
engines = ["{LIVE}-engine"]
[search]
num_simulations = 4711
"""
VARIABLES = {
    "AZQ_HOME": f"/srv/{LIVE}/runs",
    "AZQ_BROKER__CONTROL_URL": f"unix:///srv/{LIVE}/other.sock",
    "AZQ_BROKER": json.dumps({"data_urls": [f"unix:///srv/{LIVE}/a.sock", f"unix:///srv/{LIVE}/b.sock"], "data_url": ""}),
    "AZQ_DAEMON__TOKEN": f"{LIVE}-other-token",
    "AZQ_STORE__URL": f"s3://{LIVE}/other",
    "AZQ_JOIN_TOKEN": f"{LIVE}-join",
    "AZQ_PARENT_PID": "4711",
    "AZQ_ALIVE_FILE": f"/run/{LIVE}",
    "AZQ_SEARCH__NUM_SIMULATIONS": "4711",
}


class Started(Exception):
    """The first process of azq would have been started; the test has seen enough."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's own, with settings in each place where they can be."""
    (tmp_path / "azq.toml").write_text(FILE)
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "azq.env").write_text(f"AZQ_DAEMON__TOKEN={LIVE}-credential\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """How the first process of azq would have been started; brokers really are."""
    found: list[tuple[list[str], str]] = []
    popen: Any = subprocess.Popen.__init__

    def record(process: subprocess.Popen[bytes], arguments: Sequence[str], **options: Any) -> None:
        if not any(str(word).startswith("azq") for word in arguments):
            popen(process, arguments, **options)
            return
        environment = os.environ if options.get("env") is None else options["env"]
        said = [*map(str, arguments), *environment.values()]
        found.append((said, settings_seen(environment, options.get("cwd") or Path.cwd(), arguments)))
        raise Started

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    return found


def command(line: str) -> Callable[[Path], None]:
    """A command line of azq."""

    def run(folder: Path) -> None:
        CliRunner().invoke(app, line.split(), catch_exceptions=False)

    return run


def trial(folder: Path) -> None:
    plan = StudyPlan(name="s", game="tic_tac_toe", space={"network.blocks": {"low": 1, "high": 2}})  # type: ignore[dict-item]
    Trial(plan, folder / "sweeps", 0, {"network.blocks": 1})


WAYS: dict[str, Callable[[Path], None]] = {
    line: command(line)
    for line in (
        "drill run selfplay-kill",
        "drill run broker-control-kill --set search.num_simulations=8",
        "drill chaos --faults 1",
        "validate --iterations 1",
        "validate --iterations 1 --kill --stop",
        "validate --bands tic_tac_toe --seeds 4",
        "estimate tic_tac_toe --seconds 5",
        "estimate tic_tac_toe --seconds 5 --config azq.toml --set search.num_simulations=8",
        "tune tic_tac_toe --seconds 30",
        "bench inference --game tic_tac_toe",
        "bench selfplay --game tic_tac_toe",
        "bench all --size tiny",
    )
}
WAYS["a trial of a sweep"] = trial


@pytest.mark.parametrize("way", WAYS)
def test_nothing_live_reaches_what_a_rehearsal_starts(
    folder: Path, started: list[tuple[list[str], str]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "play_alone", lambda *_: iter([LockstepVersion(1, "0", 0, 0, "", "")] * 2))
    before = dict(os.environ)
    with pytest.raises(Started):
        WAYS[way](folder)
    assert dict(os.environ) == before
    ((said, settings),) = started
    assert [word for word in said if LIVE in word] == []
    assert LIVE not in settings


def test_a_rehearsal_reads_of_a_file_that_is_named_what_describes_a_run(folder: Path) -> None:
    with alone():
        assert LIVE not in everything(load())
        named = load(Path("azq.toml"), ["search.c_puct=2.0"])
    assert (named.search.num_simulations, named.search.c_puct, named.worker.engines) == (4711, 2.0, (f"{LIVE}-engine",))
    assert LIVE not in everything(named).replace(f"{LIVE}-engine", "")
    assert LIVE in everything(load())


def test_variables_that_name_nothing_live_stay_within_a_rehearsal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_LOG", "json")
    with alone():
        assert {name for name in os.environ if name.startswith("AZQ_")} == {"AZQ_LOG", "AZQ_APART"}


def settings_seen(environment: Mapping[str, str], folder: Path, arguments: Sequence[str]) -> str:
    """Everything that a process so started would find set."""
    sets = [setting for name, setting in pairwise(arguments) if name == "--set"]
    with pytest.MonkeyPatch.context() as there:
        there.setattr(os, "environ", dict(environment))
        there.chdir(folder)
        return everything(load(None, sets))


def everything(config: Config) -> str:
    return f"{machine_environment(config, 'daemon')} {config.model_dump_json()}"
