"""A machine that joined is sent away while it plays: it has to go, and its games are played on by others."""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import subprocess
import sys
from typing import Any

from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.errors import ExitCode, StateConflict
from azq.ledger import Ledger
from azq.ledger.types import JobState

JOINS_S = 90.0
GOES_S = 30.0


def revoke(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """`azq fleet revoke`; raises `StateConflict` where the machine ends otherwise than by being refused."""
    name = f"box-{rng.randrange(1 << 24):06x}"
    told = _azq(system, "join-token", "--name", name, "--roles", "selfplay")
    machine = _join(system, name, told)
    try:
        system.until(lambda: len(_owners(system)) > 1, f"jobs at {name} and here", JOINS_S)
        _azq(system, "fleet", "revoke", name)
        code = system.until(machine.poll, f"the end of {name}", GOES_S)
    finally:
        machine.kill()
        machine.wait()
    if code != ExitCode.BROKER_REFUSED:
        raise StateConflict(f"a machine that was sent away ended with exit code {code} and not with {int(ExitCode.BROKER_REFUSED)}")
    return Harm(lambda: len(_owners(system)) == 1)


def _join(system: System, name: str, told: dict[str, Any]) -> subprocess.Popen[bytes]:
    folder = system.folder / name
    folder.mkdir()
    options = ["--foreground", "--folder", str(folder), "--roles", "selfplay", "-c", "1"]
    with (folder / "join.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *shlex.split(told["command"]), *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            env=_environment() | {"AZQ_HOME": str(folder), "AZQ_JOIN_TOKEN": told["token"]},
        )  # fmt: skip


def _azq(system: System, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "azq", *arguments, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=JOINS_S, env=_environment() | {"AZQ_HOME": str(system.folder)}
    )
    if done.returncode:
        raise StateConflict(f"azq {' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}


def _owners(system: System) -> set[str]:
    """Who plays just now."""
    with system.client() as client:
        leased = [view for view in Ledger(client).jobs(RUN) if view.state is JobState.LEASED]
    return {view.owner for view in leased if view.owner.startswith(f"{socket.gethostname()}:")}
