"""A second machine with a user of its own: it works within its rights, and once it is sent away it stops and loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from azq.config import load
from azq.errors import ExitCode
from azq.host.brokers import resolve
from azq.host.fronts import free_port
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.wire.connect import connect

AZQ = [sys.executable, "-m", "azq"]
RUN = "ttt"
QUICK = ["--set", "daemon.port=0", "--set", "selfplay.journal_s=1.0", "--set", "daemon.lease_s=4.0", "--set", "arena.every_s=4"]
QUICK += ["--set", "arena.games=4", "--set", "arena.grade_positions=10", "--set", "daemon.jobs_ahead=2", "--set", "worker.concurrency=1"]
REFUSALS = ("noperm", "no permissions", "acl failure", "permission")


def environment(home: Path, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}
    return {**own, "AZQ_HOME": str(home), "OMP_NUM_THREADS": "1", **more}


def azq(home: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [*AZQ, *arguments, "--json"], capture_output=True, text=True, env=environment(home), timeout=60, cwd=home, check=True
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def started(home: Path, log: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([*AZQ, *arguments], stdout=file, stderr=file, env=environment(home, **more), cwd=home)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(90)
            finally:
                process.kill()


def eventually(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if answer := condition():
                return answer
        threading.Event().wait(0.1)
    raise AssertionError("condition did not come true in time")


def refusals(folder: Path) -> list[str]:
    lines = [line for log in folder.rglob("*.log") for line in log.read_text("utf-8", "replace").splitlines()]
    return [line for line in lines if any(word in line.lower() for word in REFUSALS)]


@pytest.fixture
def port() -> int:
    return free_port(2)


@pytest.mark.slow
def test_a_machine_that_is_sent_away_stops_and_its_games_are_played_on(tmp_path: Path, port: int) -> None:
    home, second = tmp_path / "home", tmp_path / "second"
    home.mkdir()
    second.mkdir()
    begin = ["up", "--game", "tic_tac_toe", "--run", RUN, "--json", "--listen", f"127.0.0.1:{port}", *QUICK]
    with started(home, tmp_path / "up.log", *begin):
        config = load(overrides=[f'home="{home}"'])
        eventually(lambda: azq(home, "ledger", "--run", RUN)["inserted"] > 20)
        told = azq(home, "join-token", "--name", "box", "--roles", "selfplay,inference")
        join = ["join", f"rediss://127.0.0.1:{port}/0", "--foreground", "--folder", str(second), "--roles", "selfplay,inference", "-c", "1"]
        with (
            contextlib.closing(connect(resolve(config).broker.control_url)) as owner,
            started(second, tmp_path / "join.log", *join, AZQ_JOIN_TOKEN=told["token"]) as joined,
        ):
            ledger, machine = Ledger(owner), f"{socket.gethostname()}:"

            def slots() -> int:
                leased = [view for view in ledger.jobs(RUN) if view.state is JobState.LEASED and view.owner.startswith(machine)]
                return sum(view.job.kind == "selfplay" for view in leased)

            eventually(lambda: slots() == 2)  # one of the first machine's worker, one of the box
            (row,) = azq(home, "fleet", "list")
            assert (row["name"], row["addresses"]) == ("box", ["TLS front"])
            assert refusals(home) == refusals(second) == []
            assert azq(home, "fleet", "revoke", "box") == {"revoked": "box"}
            assert joined.wait(30) == int(ExitCode.BROKER_REFUSED)
            said = [line for line in (tmp_path / "join.log").read_text().splitlines() if "child_given_up" in line]
            assert len(said) == 2
            assert all("refuses the password" in line and "azq join-token" in line for line in said)
            before = ledger.counts(RUN).inserted
            eventually(lambda: slots() == 1 and ledger.counts(RUN).inserted > before + 50)
        assert azq(home, "fleet", "list") == []
    counts = json.loads((tmp_path / "up.log").read_text().splitlines()[-1])["ledger"]
    assert counts["balanced"]
    assert counts["abandoned"] == 0
    assert refusals(home) == []
