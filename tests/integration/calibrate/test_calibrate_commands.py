"""`azq estimate` and `azq tune` as a user runs them: games of the core and in Python, a machine that is too small, a file, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from azq.config import load
from azq.errors import ExitCode
from azq.process.proc import alive, children

pytestmark = pytest.mark.release
COUNTING = '''
class Counting:
    """Adds one or two; whoever reaches seven wins."""

    def __init__(self) -> None:
        self.sum = self.player = 0

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return 2

    def current_player(self) -> int:
        return self.player

    def legal_actions(self) -> list[int]:
        return [0, 1]

    def apply_action(self, action: int) -> None:
        self.sum += action + 1
        self.player = 1 - self.player

    def is_terminal(self) -> bool:
        return self.sum >= 7

    def returns(self) -> list[float]:
        return [-1.0, 1.0] if self.player == 0 else [1.0, -1.0]

    def observation_tensor(self, player: int) -> list[int]:
        return [int(step < self.sum) for step in range(8)]

    def __str__(self) -> str:
        return f"{self.sum}, player {self.player} to move"
'''


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "azq", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *descendants(child))]


@pytest.mark.parametrize("game", ["tic_tac_toe", "counting.py:Counting"])
def test_a_game_is_estimated_and_nothing_stays(tmp_path: Path, game: str) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    process = started(tmp_path, "estimate", game, "--seconds", "10", "--json")
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert "at worst" in complaint.splitlines()[0]  # before anything was played
    found = json.loads(said)
    assert found["game"].endswith(game.rpartition(":")[2])
    rates = found["rates"]
    assert 4 <= rates["samples"] / rates["games"] <= 9
    assert rates["steps"] == pytest.approx(rates["samples"] * found["reuse"]["samples_per_insert"] / found["reuse"]["batch_size"])
    assert min(rates["evaluations"], rates["disk_bytes"], found["memory_bytes"], found["usable_bytes"]) > 0
    assert "no curve" in found["unpublished"]
    assert {path.name for path in tmp_path.iterdir()} <= {"counting.py", "__pycache__"}


def test_what_would_not_fit_is_said_before_it_is_taken(tmp_path: Path) -> None:
    sets = ("--set", "selfplay.games_in_flight=1000000", "--set", "search.num_simulations=10000")
    process = started(tmp_path, "estimate", "connect_four", *sets)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.CONFIG
    assert "set selfplay.games_in_flight=" in complaint.splitlines()[-1]
    assert "plays connect_four" not in complaint


def interrupted_output(process: subprocess.Popen[str], sign: str) -> str:
    """Interrupts a command once it has begun a line so, and waits until all that it started has ended."""
    assert process.stderr is not None
    while (line := process.stderr.readline()) and not line.startswith(sign):
        pass
    family = until(lambda: found if len(found := descendants(process.pid)) >= 3 else [], "two brokers and an inference worker")
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED
    until(lambda: not any(map(alive, family)), "the end of what it started")
    return output


def test_ctrl_c_ends_an_estimate_and_all_that_it_started(tmp_path: Path) -> None:
    interrupted_output(started(tmp_path, "estimate", "tic_tac_toe", "--seconds", "300"), "plays")


@pytest.mark.parametrize("evaluator", ["stream", "local"])
def test_a_waste_of_games_is_found_and_written(tmp_path: Path, evaluator: str) -> None:
    """One game at a time is far slower than two, the most that are tried beside one."""
    wasteful = ("--set", "selfplay.games_in_flight=1", "--set", "selfplay.answer_within_ms=0")
    process = started(tmp_path, "tune", "tic_tac_toe", "--seconds", "60", "--evaluator", evaluator, *wasteful, "--json")
    said, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, complaint
    found = json.loads(said)
    assert len(found["trials"]) >= 16, "the test alone has as many"
    assert found["ratio"] > 1.1, complaint
    assert found["changes"]["selfplay"]["games_in_flight"] > 1
    assert found["file"] == "tuned-tic_tac_toe.toml"
    assert load(tmp_path / "tuned-tic_tac_toe.toml").selfplay.games_in_flight == found["chosen"]["games"]


def test_ctrl_c_writes_nothing_and_ends_all_that_it_started(tmp_path: Path) -> None:
    output = interrupted_output(started(tmp_path, "tune", "tic_tac_toe", "--seconds", "300", "--evaluator", "stream"), "1 of about")
    assert "interrupted: nothing is chosen, nothing written" in output
    assert list(tmp_path.iterdir()) == []
