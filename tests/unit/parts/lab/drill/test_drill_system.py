"""Processes that drills start and end, and the settings of the system that is hurt."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from azq.errors import AzqError, ConfigError, StateConflict
from azq.parts.lab.drill.faults.deadly import ANSWERS, FLIPPED, HASH, broken
from azq.parts.lab.drill.system import System, ended
from azq.process.apart import start
from azq.store import open_store
from azq.wire.messages import ModelEvent

SAYS = "import json, os; print(json.dumps([os.getcwd(), {name: os.environ[name] for name in os.environ if name.startswith('AZQ_')}]))"


def test_a_process_ends_with_its_block(tmp_path: Path) -> None:
    with ended(start([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, tmp_path / "log")) as process:
        pass
    assert process.returncode == -signal.SIGKILL


def test_a_process_finds_no_setting_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", "/elsewhere")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/elsewhere")
    assert start([sys.executable, "-c", SAYS], tmp_path, tmp_path / "log", {"AZQ_RUN": "x"}).wait(60.0) == 0
    assert json.loads((tmp_path / "log").read_text()) == [str(tmp_path), {"AZQ_RUN": "x"}]


@pytest.mark.parametrize("setting", ["home=/live", "broker.control_url=unix:///live", 'broker.data_urls=["unix:///live"]'])
def test_a_drill_takes_no_home_and_no_brokers_of_others(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"--set {setting.partition('=')[0]}: a rehearsal has a home and brokers of its own"):
        System(tmp_path, "tic_tac_toe", [setting]).journal_s()


def test_nothing_of_a_system_that_does_not_run_can_be_hurt(tmp_path: Path) -> None:
    with pytest.raises(StateConflict, match="does not run"):
        _ = System(tmp_path, "tic_tac_toe", []).kin


DATA = bytes(range(256)) * 4


@pytest.fixture
def good(tmp_path: Path) -> ModelEvent:
    sha256, uri = open_store("file", directory=tmp_path).put(DATA)
    return ModelEvent(1, sha256, uri, len(DATA), b"", bytes(8), bytes(8), 1e-3)


def test_each_way_of_breaking_a_network_shows_where_it_should(tmp_path: Path, good: ModelEvent) -> None:
    store = open_store("file", directory=tmp_path)
    unnamed, flipped, answers = (broken(store, good, 2, way) for way in (HASH, FLIPPED, ANSWERS))
    with pytest.raises(AzqError):
        store.get(unnamed.uri, unnamed.sha256)
    found = store.get(flipped.uri, flipped.sha256)
    assert found != DATA
    assert len(found) == len(DATA)
    assert store.get(answers.uri, answers.sha256) == DATA
    assert answers.values != good.values
    assert flipped.values == unnamed.values == good.values


def test_the_next_good_one_is_the_same_under_another_version(tmp_path: Path, good: ModelEvent) -> None:
    assert broken(open_store("file", directory=tmp_path), good, 2, "") == msgspec.structs.replace(good, version=2)
