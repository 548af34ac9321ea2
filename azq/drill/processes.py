"""The processes of a system as the kernel knows them, whatever their heartbeats say: also those that only just start."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from azq.drill.blows import CHILD
from azq.process.proc import PROC, children, command

COMMANDS = {"daemon": ["daemon"], "inference": ["inference"], "learner": ["learner"], "selfplay": ["worker", "--queues", "selfplay."]}


def processes(pid: int, proc: Path = PROC) -> dict[str, int]:
    """Process ids of the children of an `azq up` by role, brokers and a self-play worker's first child among them."""
    found: dict[str, int] = {}
    for child in children(pid, proc):
        if (role := _role(child, proc)) is not None:
            found[role] = child
    if playing := children(found["selfplay"], proc) if "selfplay" in found else []:
        found[CHILD] = playing[0]
    return found


class Held:
    """One process, and no other that gets its number later."""

    def __init__(self, pid: int) -> None:
        self._file = os.pidfd_open(pid)

    def send(self, sig: signal.Signals) -> None:
        """Sends a signal; nothing where it is gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._file, sig)

    def close(self) -> None:
        """Forgets it."""
        os.close(self._file)


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
