"""`azq tune` as a user runs it: trials, a choice or none, a file that `azq up` takes; Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from azq.config import load
from azq.errors import ExitCode
from azq.process.proc import alive, children

pytestmark = pytest.mark.release


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "azq", "tune", "tic_tac_toe", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *descendants(child))]


@pytest.mark.parametrize("evaluator", ["stream", "local"])
def test_a_waste_of_games_is_found_and_written(tmp_path: Path, evaluator: str) -> None:
    """One game at a time is far slower than four: no noise hides that."""
    wasteful = ("--set", "selfplay.games_in_flight=1", "--set", "selfplay.answer_within_ms=0", "--longer", "100")
    process = started(tmp_path, "--seconds", "60", "--shared", "--evaluator", evaluator, *wasteful, "--json")
    said, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, complaint
    found = json.loads(said)
    assert len(found["trials"]) >= 20
    assert found["ratio"] > 1.5, complaint
    assert found["changes"]["selfplay"]["games_in_flight"] > 1
    assert found["file"] == "tuned-tic_tac_toe.toml"
    assert load(tmp_path / "tuned-tic_tac_toe.toml").selfplay.games_in_flight == found["chosen"]["games"]


def test_ctrl_c_writes_nothing_and_ends_all_that_it_started(tmp_path: Path) -> None:
    process = started(tmp_path, "--seconds", "300", "--evaluator", "stream")
    assert process.stderr is not None
    while (line := process.stderr.readline()) and not line.startswith("1 of about"):
        pass
    family = until(lambda: found if len(found := descendants(process.pid)) >= 3 else [], "two brokers and an inference worker")
    os.kill(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "interrupted: nothing is chosen, nothing written" in said
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(map(alive, family)), "the end of what it started")
