"""What a child tells its supervisor by systemd's protocol: that it lives. The same messages feed systemd's own watchdog."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

from azq.process.sdnotify import WATCHDOG

LONGEST_MESSAGE = 4096  # bytes


class Pings:
    """The receiving end of one child's notify socket."""

    def __init__(self, hang_after_s: float) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="azq-"))  # short: a socket's path has about 100 bytes
        self._hang_after_s = hang_after_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._folder / "notify"))

    def variables(self) -> dict[str, str]:
        """What the child's environment says of it."""
        return {"NOTIFY_SOCKET": str(self._folder / "notify"), "WATCHDOG_USEC": str(int(self._hang_after_s * 1e6)), "WATCHDOG_PID": ""}

    def heard(self) -> bool:
        """Whether the child said that it lives since this was last asked."""
        alive = False
        with contextlib.suppress(BlockingIOError):
            while True:
                alive |= WATCHDOG in self._socket.recv(LONGEST_MESSAGE).decode("utf-8", "replace").split("\n")
        return alive

    def close(self) -> None:
        """Stops listening."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def possible() -> bool:
    """Whether this system has such sockets."""
    return hasattr(socket, "AF_UNIX") and os.name == "posix"
