"""Where the threads of this process are at this moment, and those of the processes that it forked."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable

SIGNAL = signal.SIGUSR2  # Celery's pool uses SIGUSR1
WRITES_WITHIN_S = 1.0
LOOK_S = 0.05


def own() -> list[str]:
    """The stacks of all Python threads of this process, the innermost call last, as lines."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    asks = threading.get_ident()
    lines = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda one: (one[0] != threading.main_thread().ident, one[0])):
        lines.append(f"thread {names.get(ident, ident)}" + (", which answers" if ident == asks else ""))
        lines += "".join(traceback.format_stack(frame)).splitlines()
    return lines


class ForkedStacks:
    """Made before the fork: a signal has each child write where its threads are, from C, so that no code of its keeps it from that."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())  # shared with the children, as long as this process lives
        faulthandler.register(SIGNAL, file=self._file, all_threads=True)

    def of(self, pids: Iterable[int]) -> list[str]:
        """The stacks of these children, the innermost call first, as lines; one that writes nothing is told too."""
        return [line for pid in pids for line in (f"process {pid}", *self._of(pid))]

    def _of(self, pid: int) -> list[str]:
        os.lseek(self._file, 0, os.SEEK_SET)  # theirs too: it is the same open file
        os.ftruncate(self._file, 0)
        try:
            os.kill(pid, SIGNAL)
        except ProcessLookupError:
            return ["  it is gone"]
        written, deadline_s, pause = b"", time.monotonic() + WRITES_WITHIN_S, threading.Event()
        while time.monotonic() < deadline_s:
            pause.wait(LOOK_S)
            before, written = written, os.pread(self._file, os.fstat(self._file).st_size, 0)
            if written and written == before:
                return written.decode("utf-8", "replace").splitlines()
        return ["  it wrote nothing: it is stopped, or waits in the kernel"]
