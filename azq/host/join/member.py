"""What another machine, or a command here, asks of this one for a cluster: start and stop its work, tell how it is, run a command.

An order comes as JSON on standard input, where nobody else on the machine reads what is secret in it, and is answered with JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from azq import __version__
from azq.errors import AzqError, ConfigError, StateConflict
from azq.files import make_folders, publish_file
from azq.host.join.folder import WORKING, last_lines, text_of, worker_of
from azq.process.proc import alive
from azq.process.python import AZQ
from azq.process.start import foreign_environment

ORDER, LOG = "order", "member.log"  # the hash of what is done here; what `azq join` said
POLL_S = 0.1


class MemberOrder(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of a machine; `settings` are `AZQ_` variables, `join` and `arguments` those of azq's commands."""

    what: Literal["start", "stop", "look", "run", "admit"]
    folder: str = ""
    settings: dict[str, str] = {}
    join: list[str] = []
    arguments: list[str] = []
    token: str = ""
    guests: dict[str, list[str]] = {}  # roles of machines that are to be let in, by name
    within_s: float = 60.0

    def digest(self) -> str:
        """What a machine does, without its token: equal where nothing has to change."""
        return hashlib.sha256(msgspec.json.encode([self.settings, self.join])).hexdigest()


class Beat(msgspec.Struct, frozen=True):
    """A process of a fleet that lives."""

    role: str
    host: str
    run: str = ""


class RunSeen(msgspec.Struct, frozen=True):
    """A run as its control plane has it."""

    state: str
    games: int = 0
    version: int = 0
    ranks_at_work: int = 0  # beside the learner


class Told(msgspec.Struct):
    """The answer."""

    host: str
    version: str = __version__
    works: bool = False
    digest: str = ""
    services: dict[str, str] = {}
    said: str = ""
    code: int = 0
    beats: list[Beat] | None = None  # where this machine keeps the brokers and they answer
    runs: dict[str, RunSeen] = {}
    tokens: dict[str, str] = {}  # secrets


def answer(order: MemberOrder) -> Told:
    """Does what is asked; raises `AzqError` where it cannot."""
    try:
        folder, told = Path(order.folder).expanduser().absolute(), Told(socket.gethostname())
    except RuntimeError:
        raise ConfigError(f"folder {order.folder}: user {os.getuid()} has no home here; name it without ~") from None
    match order.what:
        case "run":
            done = subprocess.run([*AZQ, *order.arguments], env=_environment(order), capture_output=True, text=True, check=False)
            told.code, told.said = done.returncode, done.stdout if done.returncode == 0 else done.stderr.strip()
        case "admit":
            os.environ.update(_settings(order))
            told.tokens = dict(_fleet().admitted(order.guests))
        case "start":
            _start(order, folder)
            _look(order, folder, told)
        case "stop":
            _stop(folder, order.within_s)
            _look(order, folder, told)
        case "look":
            _look(order, folder, told)
    return told


def _look(order: MemberOrder, folder: Path, told: Told) -> None:
    pid = worker_of(folder)
    told.works, told.said = bool(pid), last_lines(folder / LOG)
    told.digest = text_of(folder / ORDER) if pid else ""
    with contextlib.suppress(ValueError):
        found: dict[str, Any] = json.loads(text_of(folder / WORKING) or "{}")
        told.services = found.get("services", {}) if found.get("pid") == pid else {}
    if order.settings and pid:
        os.environ.update(_settings(order))
        with contextlib.suppress(AzqError):
            told.beats, told.runs = _fleet().fleet_facts()


def _start(order: MemberOrder, folder: Path) -> None:
    """Starts `azq join` so that it outlives whoever asked, and waits until its services are started; raises what it said where it ended."""
    if worker_of(folder):
        raise StateConflict(f"process {worker_of(folder)} works in {folder} already")
    make_folders(folder)
    folder.chmod(0o700)
    (folder / WORKING).unlink(missing_ok=True)
    publish_file(folder / ORDER, order.digest().encode(), 0o600)
    given = ["--token-file", "-"] if order.token else []
    command = [*AZQ, "join", *order.join, *given, "--foreground", "--force", "--folder", str(folder)]
    with (folder / LOG).open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, cwd=folder, env=_environment(order), start_new_session=True
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(order.token.encode() + b"\n")
        process.stdin.close()
    deadline = time.monotonic() + order.within_s
    while not (folder / WORKING).exists():
        if process.poll() is not None:
            raise ConfigError(f"azq join ended with exit code {process.returncode}: {last_lines(folder / LOG, 1)}")
        if time.monotonic() > deadline:
            process.terminate()
            raise ConfigError(f"azq join did not start within {order.within_s:g} s: {last_lines(folder / LOG, 1)}")
        threading.Event().wait(POLL_S)
    process.returncode = 0  # it outlives whoever asked, and nobody here waits for it


def _stop(folder: Path, within_s: float) -> None:
    """Asks who works here to drain, waits for its end, and ends it after so long; passwords go with it."""
    pid, deadline, sign = worker_of(folder), time.monotonic() + within_s, signal.SIGTERM
    while pid and alive(pid):  # it lets go of its folder before it is gone
        if sign is signal.SIGTERM or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
            sign, deadline = signal.SIGKILL, max(deadline, time.monotonic() + POLL_S)
        threading.Event().wait(POLL_S)
    for name in ("azq.env", ORDER, WORKING):
        (folder / name).unlink(missing_ok=True)


def _fleet() -> ModuleType:
    """What only the machine with the brokers needs: it takes longer to load than all else."""
    from azq.host.join import fleet

    return fleet


def _environment(order: MemberOrder) -> dict[str, str]:
    return {**foreign_environment(), **_settings(order)}


def _settings(order: MemberOrder) -> dict[str, str]:
    """The settings as they hold here, where `~` is this user's home."""
    return {name: os.path.expanduser(value) if name == "AZQ_HOME" else value for name, value in order.settings.items()}
