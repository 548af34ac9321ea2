"""A study of real runs: interrupted in mid-run, resumed, reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

STUDY = """
[study]
name = "rates"
game = "tic_tac_toe"
trials = 2
until = "games=600"
metric = "loss"

[settings]
"arena.every_s" = 0

[space]
"learner.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"""


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "azq", "sweep", str(folder / "study.toml"), "--set", f'home="{folder}/runs"', *words]


def test_a_study_survives_its_interruption(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    first = subprocess.Popen(command(tmp_path), stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert first.stderr is not None
    assert first.stderr.readline().startswith("trial 0: loss ")
    first.send_signal(signal.SIGINT)
    first.stderr.close()
    assert first.wait(PATIENCE_S) != 0
    told = subprocess.run(command(tmp_path, "--json"), capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert told.returncode == 0, told.stderr
    values = json.loads(told.stdout)
    assert sum(row["state"] == "complete" for row in values["trials"]) == 2
