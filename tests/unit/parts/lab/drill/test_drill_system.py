"""Processes that drills start and end, and the settings of the system that is hurt."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq.errors import ConfigError, StateConflict
from azq.parts.lab.drill.system import System
from azq.process.apart import start

SAYS = "import json, os; print(json.dumps([os.getcwd(), {name: os.environ[name] for name in os.environ if name.startswith('AZQ_')}]))"


def test_a_process_finds_no_setting_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", "/elsewhere")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/elsewhere")
    assert start([sys.executable, "-c", SAYS], tmp_path, tmp_path / "log", {"AZQ_RUN": "x"}).wait(PATIENCE_S) == 0
    assert json.loads((tmp_path / "log").read_text()) == [str(tmp_path), {"AZQ_RUN": "x"}]


@pytest.mark.parametrize("setting", ["home=/live", "broker.control_url=unix:///live", 'broker.data_urls=["unix:///live"]'])
def test_a_drill_takes_no_home_and_no_brokers_of_others(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"--set {setting.partition('=')[0]}: a rehearsal uses its own home and brokers"):
        System(tmp_path, "tic_tac_toe", [setting]).journal_s()


def test_nothing_of_a_system_that_does_not_run_can_be_hurt(tmp_path: Path) -> None:
    with pytest.raises(StateConflict, match="does not run"):
        _ = System(tmp_path, "tic_tac_toe", []).kin
