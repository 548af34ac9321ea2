"""What a process tells systemd: ready, alive, stopping. Does nothing where no service manager listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Sends state lines (`READY=1`, `STATUS=...`) to the service manager; False where there is none or it is deaf."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True
