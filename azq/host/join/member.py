"""What another machine, or a command here, asks of this one for a cluster: start and stop its work, tell how it is, run a command.

An order comes as JSON on standard input, where no other user reads its secrets, and is answered with JSON.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from azq import __version__
from azq.config import load
from azq.errors import AzqError, ConfigError, NotFound, StateConflict
from azq.files import locked, make_folders, publish_file
from azq.process.proc import alive
from azq.process.start import AZQ, foreign_environment
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import RankBeat

ORDER, LOG = "order", "member.log"  # the hash of what is done here; what `azq join` output
POLL_S = 0.1
LOCK, WORKING = "member.lock", "working.json"  # who works here, and how each of its processes is
LAST_LINES = 4


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


class MemberReport(msgspec.Struct):
    """The answer."""

    host: str
    version: str = __version__
    works: bool = False
    digest: str = ""
    services: dict[str, str] = {}
    output: str = ""
    code: int = 0
    beats: list[Beat] | None = None  # where this machine keeps the brokers and they answer
    runs: dict[str, RunSeen] = {}
    tokens: dict[str, str] = {}  # secrets


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The folder for this process alone, until its last process is gone. Raises `StateConflict` where another works there."""
    make_folders(folder)
    with locked(folder / LOCK, lambda pid: f"process {pid} works in {folder}; stop it, or name another --folder"):
        (folder / WORKING).unlink(missing_ok=True)
        yield


def worker_of(folder: Path) -> int:
    """The process that works in a folder; 0 where none does."""
    file = folder / LOCK
    if not file.exists():
        return 0
    try:
        with locked(file, str):
            return 0
    except StateConflict as held:
        return int(str(held)) if str(held).isdigit() else 0


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """The end of a log."""
    return " | ".join(line for line in text_of(path).strip().splitlines()[-count:] if line)


def text_of(path: Path) -> str:
    """A file's text; empty where there is none."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def answer(order: MemberOrder) -> MemberReport:
    """Does what is asked; raises `AzqError` where it cannot."""
    try:
        folder, report = Path(order.folder).expanduser().absolute(), MemberReport(socket.gethostname())
    except RuntimeError:
        raise ConfigError(f"folder {order.folder}: user {os.getuid()} has no home here; name it without ~") from None
    match order.what:
        case "run":
            done = subprocess.run([*AZQ, *order.arguments], env=_environment(order), capture_output=True, text=True, check=False)
            report.code, report.output = done.returncode, done.stdout if done.returncode == 0 else done.stderr.strip()
        case "admit":
            os.environ.update(_settings(order))
            report.tokens = dict(_admitted(order.guests))
        case "start":
            _start(order, folder)
            _inspect(order, folder, report)
        case "stop":
            _stop(folder, order.within_s)
            _inspect(order, folder, report)
        case "look":
            _inspect(order, folder, report)
    return report


def _inspect(order: MemberOrder, folder: Path, report: MemberReport) -> None:
    pid = worker_of(folder)
    report.works, report.output = bool(pid), last_lines(folder / LOG)
    report.digest = text_of(folder / ORDER) if pid else ""
    with contextlib.suppress(ValueError):
        working: dict[str, Any] = json.loads(text_of(folder / WORKING) or "{}")
        report.services = working.get("services", {}) if working.get("pid") == pid else {}
    if order.settings and pid:
        os.environ.update(_settings(order))
        with contextlib.suppress(AzqError):
            report.beats, report.runs = _fleet_facts()


def _start(order: MemberOrder, folder: Path) -> None:
    """Starts `azq join` so that it outlives the caller, and waits until its services are started; raises what it output where it ended."""
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
    process.returncode = 0  # it outlives the caller, which does not wait for it


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


def _fleet_facts() -> tuple[list[Beat], dict[str, RunSeen]]:
    """Who lives in the fleet whose brokers are those of this home, and its runs. Raises `ConfigError` or `BrokerError`."""
    from azq.bus.redis import RedisBus  # what only the machine with the brokers needs takes longer to load than all else
    from azq.host.brokers import open_control
    from azq.ledger import Ledger
    from azq.ledger.records import sections_of
    from azq.status.observe import read_weights, read_workers

    _, client = open_control(load())
    with contextlib.closing(client):
        bus, ledger = RedisBus(client), Ledger(client)
        beats = [Beat(beat.role, beat.host, beat.run) for beat in read_workers(bus)]
        if bus.get(keys.FLEET) is not None:
            beats.append(Beat("daemon", ""))
        runs: dict[str, RunSeen] = {}
        for view in ledger.runs():
            run, ranks, newest = view.record.run, sections_of(view.record).learner.ranks, read_weights(bus, view.record.run)
            living = [decode(frame, RankBeat) for number in range(1, ranks) if (frame := bus.get(keys.rank(run, number)))]
            at_work = sum(not beat.free for beat in living)
            runs[run] = RunSeen(str(view.state), ledger.counts(run).inserted, newest[0].version if newest else 0, at_work)
    return beats, runs


def _admitted(guests: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """A new token for each machine; the one before, if any, is worth nothing any more."""
    from azq.host.brokers import resolve
    from azq.host.join.token import Invitee, invitation
    from azq.host.users import machines_of

    config = load()
    for name, roles in guests.items():
        with machines_of(resolve(config)) as machines, contextlib.suppress(NotFound):
            machines.revoke(name)
        yield name, invitation(config, Invitee(name, tuple(roles)))["token"]


def _environment(order: MemberOrder) -> dict[str, str]:
    return {**foreign_environment(), **_settings(order)}


def _settings(order: MemberOrder) -> dict[str, str]:
    """The settings as they hold here, where `~` is this user's home."""
    return {name: os.path.expanduser(value) if name == "AZQ_HOME" else value for name, value in order.settings.items()}
