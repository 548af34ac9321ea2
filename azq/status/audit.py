"""The audit stream of a control plane: who changed what, from where and when, and how it was answered."""

from __future__ import annotations

import getpass
import os
import queue
import socket
import threading

from azq import logs
from azq.bus.base import Bus, Entry
from azq.clock import now_ms
from azq.errors import BrokerError, WireError
from azq.wire import keys
from azq.wire.codec import decode, encode, skip_unreadable
from azq.wire.messages import AuditLine

KEPT_LINES = 10_000
MOST_WAITING = 1000
CLOSE_S = 2.0

log = logs.get(__name__)


class Auditor:
    """Writes lines in a thread of its own, so that no change waits for its line or fails with it; each is in the log as well."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lines: queue.Queue[AuditLine | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._start = threading.Lock()

    def note(self, line: AuditLine) -> None:
        """Says what was done; returns at once."""
        log.info("audit", who=line.who, what=line.what, address=line.address, status=line.status, about=line.about, key=line.key)
        with self._start:
            if self._thread.ident is None:
                self._thread.start()
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            log.error("audit_lost", what=line.what, reason="the control plane is too slow for them; the line above is all there is")

    def close(self) -> None:
        """Writes what waits, for a while."""
        if self._thread.ident is not None:
            self._lines.put(None)
            self._thread.join(CLOSE_S)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            write_line(self._bus, line)


def write_line(bus: Bus, line: AuditLine) -> None:
    """Appends a line; what it is about has happened already, so a failure is said and no error."""
    try:
        bus.publish(keys.AUDIT, encode(line), max_length=KEPT_LINES)
    except (BrokerError, WireError) as error:
        log.error("audit_lost", what=line.what, reason=str(error))


def write_command(bus: Bus, what: str, about: str) -> None:
    """A line for a command that changes something by itself, as the user who runs it."""
    write_line(bus, AuditLine(now_ms(), f"{_user()}@{socket.gethostname()}", what, about=about))


def _user() -> str:
    """This process's user; its number where it has no name, as in a container that runs as any."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # from Python 3.13 on the latter
        return str(os.getuid())


def line_of(entry: Entry) -> AuditLine | None:
    """The line in an entry; None, and said, where it does not decode."""
    with skip_unreadable(entry.place):
        return decode(entry.frame, AuditLine)
    return None
