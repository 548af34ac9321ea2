"""The processes of a system as the kernel knows them, whatever their heartbeats say: also those that only just start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from azq.process.proc import PROC, children, command
from azq.process.start import foreign_environment

CHILD = "selfplay-child"  # the process of a self-play worker's pool that plays
COMMANDS = {"daemon": ["daemon"], "inference": ["inference"], "learner": ["learner"], "selfplay": ["worker", "--queues", "selfplay."]}
NO_SETTING: dict[str, str] = {}


def start(arguments: Sequence[str], log: Path, env: dict[str, str] = NO_SETTING, folder: Path | None = None) -> subprocess.Popen[bytes]:
    """A process in a session of its own, with no other setting of azq than those in `env`; it writes to the end of a log."""
    with log.open("ab") as file:
        return subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder, env=foreign_environment() | env,
            start_new_session=True,
        )  # fmt: skip


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end of the block, where it still runs."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def processes(pid: int, proc: Path = PROC) -> dict[str, int]:
    """Process ids of the children of an `azq up` by role, brokers and a self-play worker's first child among them."""
    found: dict[str, int] = {}
    for child in children(pid, proc):
        if (role := _role(child, proc)) is not None:
            found[role] = child
    if playing := children(found["selfplay"], proc) if "selfplay" in found else []:
        found[CHILD] = playing[0]
    return found


def killed_if(pid: int, is_moment: Callable[[], bool]) -> bool:
    """Stops a process, looks whether its moment is there, which lasts milliseconds, and kills it or lets it go on."""
    os.kill(pid, signal.SIGSTOP)
    if is_moment():
        os.kill(pid, signal.SIGKILL)
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def signalled(sig: signal.Signals, *pids: int) -> Callable[[], None]:
    """Sends processes a signal; returns what lets them go on, and no others that have their numbers by then."""
    files = [os.pidfd_open(pid) for pid in pids]

    def send(number: signal.Signals) -> None:
        for file in files:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(file, number)

    def lift() -> None:
        send(signal.SIGCONT)
        for file in files:
            os.close(file)

    send(sig)
    return lift


def _role(pid: int, proc: Path) -> str | None:
    words = command(pid, proc)
    try:
        where = (proc / str(pid) / "cwd").readlink()
    except OSError:
        return None
    if where.parent.name == ".broker":
        return f"broker-{where.name}"
    for role, arguments in COMMANDS.items():
        if "azq" in words and "".join(f"{word}\0" for word in words[words.index("azq") + 1 :]).startswith("\0".join(arguments)):
            return role
    return None
