"""A second machine with a user of its own: it works within its rights, and once it is sent away it stops and loses nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import azq
from recovering import trains
from waiting import PATIENCE_S

from azq import Local
from azq.errors import ExitCode
from azq.host.fronts import free_port
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.process.apart import start
from azq.process.start import AZQ
from azq.wire.connect import connect

RUN = "ttt"
SETTINGS = (
    *("selfplay.journal_s=1.0", "daemon.lease_s=4.0", "daemon.jobs_ahead=2", "worker.concurrency=1"),
    *("arena.every_s=4", "arena.games=4", "arena.grade_positions=10"),
)
REFUSALS = ("noperm", "no permissions", "acl failure", "permission")


def answer(home: Path, *arguments: str) -> Any:
    """What a command of the first machine's owner answers."""
    return json.loads(azq(home, *arguments, "--json").stdout)


@contextlib.contextmanager
def joined(home: Path, log: Path, token: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`azq join` of a second machine; ended by Ctrl-C, at the latest when the test is over."""
    process = start([*AZQ, "join", *arguments], home, log, {"AZQ_HOME": str(home), "AZQ_JOIN_TOKEN": token, "OMP_NUM_THREADS": "1"})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


def refusals(folder: Path) -> list[str]:
    lines = [line for log in folder.rglob("*.log") for line in log.read_text("utf-8", "replace").splitlines()]
    return [line for line in lines if any(word in line.lower() for word in REFUSALS)]


@pytest.mark.slow
def test_a_machine_that_is_sent_away_stops_and_its_games_are_played_on(tmp_path: Path) -> None:
    home, second, port = tmp_path / "home", tmp_path / "second", free_port(2)
    second.mkdir()
    with Local("tic_tac_toe", run=RUN, settings=SETTINGS, options=["--listen", f"127.0.0.1:{port}"], folder=home) as up:
        trains(up, 20)
        token = answer(home, "join-token", "--name", "box", "--roles", "selfplay,inference")
        join = [f"rediss://127.0.0.1:{port}/0", "--foreground", "--folder", str(second), "--roles", "selfplay,inference", "-c", "1"]
        with (
            contextlib.closing(connect(up.config().broker.control_url)) as owner,
            joined(second, tmp_path / "join.log", token["token"], *join) as box,
        ):
            ledger, machine = Ledger(owner), f"{socket.gethostname()}:"

            def slots() -> int:
                leased = [view for view in ledger.jobs(RUN) if view.state is JobState.LEASED and view.owner.startswith(machine)]
                return sum(view.job.kind == "selfplay" for view in leased)

            up.until(lambda: slots() == 2, "a lease of each machine", PATIENCE_S)
            (row,) = answer(home, "fleet", "list")
            assert (row["name"], row["addresses"]) == ("box", ["TLS front"])
            assert refusals(home) == refusals(second) == []
            assert answer(home, "fleet", "revoke", "box") == {"revoked": "box"}
            assert box.wait(PATIENCE_S) == int(ExitCode.BROKER_REFUSED)
            lines = [line for line in (tmp_path / "join.log").read_text().splitlines() if "child_given_up" in line]
            assert len(lines) == 2
            assert all("refuses the password" in line and "azq join-token" in line for line in lines)
            up.until(lambda: slots() == 1, "the first machine's lease alone", PATIENCE_S)
            trains(up, 50)
        assert answer(home, "fleet", "list") == []
        up.end()
        counts = up.wait(minutes=1.5).ledger
    assert counts.balanced
    assert counts.abandoned == 0
    assert refusals(home) == []
