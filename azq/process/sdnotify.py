"""What a process tells systemd: ready, alive, stopping. Does nothing where no service manager listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from azq import logs
from azq.metrics import Rate

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"


DROPPED = Rate()  # messages that found the socket's buffer full: whoever should read does not


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Sends state lines (`READY=1`, `STATUS=...`) to the service manager; False where there is none or it is deaf. Never waits."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.send("\n".join(lines).encode())
    except BlockingIOError:
        _drop()
        return False
    except OSError:
        return False
    return True


def more_time(seconds: float) -> str:
    """The state line that asks for so much longer, from now on, before a start counts as failed; to be said again before it is over."""
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}"


def _drop() -> None:
    DROPPED.add(1)
    number = int(DROPPED.total)
    if number & (number - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: a line for each would be as many as there were messages
        logs.get(__name__).warning("notify_dropped", messages=number, reason="nobody reads the socket in NOTIFY_SOCKET")
