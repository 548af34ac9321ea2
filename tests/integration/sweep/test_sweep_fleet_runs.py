"""A study over a running system's tags: its runs go on where they were after the sweep was killed, and wait where it was left."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from azq.client import Client
from azq.errors import RequestError
from azq.ledger.types import RunState

pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

STUDY = """
[study]
name = "tags"
game = "tic_tac_toe"
trials = 2
until = "steps=60"
metric = "loss"
where = "fleet"

[settings]
"arena.every_s" = 0
"selfplay.slice_s" = 5.0
"learner.min_window" = 500
"learner.batch_size" = 64

[space]
"learner.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"""
QUIET = ("--set", "arena.every_s=0", "--set", "selfplay.slice_s=5.0")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A running system in the folder's home."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = ("--set", f'home="{tmp_path}/runs"', "--set", f"daemon.port={port}")
    command = [sys.executable, "-m", "azq", "up", "--game", "tic_tac_toe", "--run", "host", "--json", *home, *QUIET]
    system = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        system.send_signal(signal.SIGINT)
        system.wait(120)


@pytest.fixture
def started(tmp_path: Path, url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a sweep of the study; none is left behind."""
    command = [sys.executable, "-m", "azq", "sweep", str(tmp_path / "study.toml"), "--url", url, "--set", f'home="{tmp_path}/runs"']
    with contextlib.ExitStack() as ends:

        def start(*words: str, **how: Any) -> subprocess.Popen[str]:
            sweep = subprocess.Popen([*command, *words], text=True, cwd=tmp_path, **how)
            ends.callback(lambda: (sweep.send_signal(signal.SIGINT), sweep.wait(60)))
            return sweep

        yield start


def test_runs_of_a_study_outlive_its_sweep(tmp_path: Path, url: str, started: Callable[..., subprocess.Popen[str]]) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    token = tmp_path / "runs" / ".token"

    def works() -> bool:
        if not token.is_file():
            return False
        try:
            with Client(url, token.read_text().strip()) as asked:
                return any(queue.queue == "selfplay.cpu" and queue.slots for queue in asked.queues())
        except RequestError:
            return False

    until(works, "a worker", 120)
    with Client(url, token.read_text().strip()) as client:
        killed = started()
        until(lambda: any(run.name == "tags-0000" for run in client.runs()), "the first run", 60)
        killed.kill()
        killed.wait(30)
        assert client.run("tags-0000").state is RunState.RUNNING
        left = started()
        until(lambda: client.run_status("tags-0000").learner_live, "a learner", 120)
        left.send_signal(signal.SIGINT)
        assert left.wait(120) != 0
        assert client.run("tags-0000").state is RunState.PAUSED
        whole = started("--json", stdout=subprocess.PIPE)
        told = json.loads(whole.communicate(timeout=400)[0])
        assert [row["state"] for row in told["trials"]] == ["complete", "complete"]
        assert [row.state for row in client.study("tags").trials] == ["complete", "complete"]
