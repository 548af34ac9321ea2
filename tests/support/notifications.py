"""What a process says to the service manager that started it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from waiting import PATIENCE_S


class Notifications:
    """The service manager's end of the notify socket, read at once, as a manager does: the kernel keeps only ten unread messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._came = threading.Condition()
        self._lines: list[str] = []
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        with self._socket:
            while message := self._socket.recv(4096):
                with self._came:
                    self._lines += message.decode().splitlines()
                    self._came.notify_all()

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        with self._came:
            return list(self._lines)

    def wait_for(self, start: str, *, count: int = 1, within_s: float = PATIENCE_S) -> None:
        """Returns once `count` lines came that start so."""
        with self._came:
            came = self._came.wait_for(lambda: sum(line.startswith(start) for line in self._lines) >= count, within_s)
            assert came, f"no {start} x{count} in {self._lines}"

    def close(self) -> None:
        """Ends the reading: an empty message says so."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self.path))
