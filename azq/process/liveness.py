"""Signs of life by systemd's protocol: ready, alive, stopping. `azq up` reads them from its children as systemd does from its services.

In a container, where nobody listens, the age of a file says the same: health checks look at it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from azq import logs
from azq.metrics import Rate
from azq.waiting import WAITS, meanwhile

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # how a process learns whom to tell, and how often
READY_PID = "NOTIFY_READY_PID"  # the process that said READY
ALIVE_FILE = "AZQ_ALIVE_FILE"  # the variable that names the file
HANG_AFTER_S = 10.0  # who said READY and then nothing for so long is killed and started again; the units of systemd say the same
PATIENCE_EVERY_S = 1.0
LONGEST_MESSAGE = 4096  # bytes

DROPPED = Rate()  # messages that found the socket's buffer full: whoever should read does not


def kept_alive(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether somebody starts this process again when it ends."""
    return any(environment.get(name) for name in ("NOTIFY_SOCKET", ALIVE_FILE))


def notify(*lines: str, environment: MutableMapping[str, str] = os.environ) -> bool:
    """Sends state lines (`READY=1`, `STATUS=...`) to the service manager; False where there is none or it is deaf. Never waits.

    WATCHDOG is left out before READY: systemd takes the first one for the begin of the watch, and a start takes as long as it takes.
    """
    if file := environment.get(ALIVE_FILE):
        with contextlib.suppress(OSError):
            Path(file).touch()
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if READY in lines:
        environment[READY_PID] = str(os.getpid())
    if environment.get(READY_PID) != str(os.getpid()) and not (lines := tuple(line for line in lines if line != WATCHDOG)):
        return True
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


@contextlib.contextmanager
def patient(longest_s: float) -> Iterator[None]:
    """Says that this process lives for the length of a block, `longest_s` at most, whatever the block waits for."""
    end_s = time.monotonic() + longest_s

    def say(ended: threading.Event) -> None:
        while time.monotonic() < end_s and not ended.wait(PATIENCE_EVERY_S):
            notify(WATCHDOG)

    with meanwhile("patience", say):
        yield


@contextlib.contextmanager
def waits_for_brokers() -> Iterator[None]:
    """Says that this process lives while the thread that enters the block waits for a broker, whatever that takes."""
    if not kept_alive():
        yield
        return
    thread = threading.get_ident()

    def say(ended: threading.Event) -> None:
        while not ended.wait(PATIENCE_EVERY_S):
            if WAITS.excuse(thread):
                notify(WATCHDOG)

    with meanwhile("broker patience", say):
        yield


def watchdog_interval_s() -> float | None:
    """Seconds between WATCHDOG=1 messages: half of what a manager waits. None where nobody watches this process."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or os.environ.get("WATCHDOG_PID") not in (None, "", str(os.getpid())):
        return None
    return int(usec) / 2e6


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
        return dict(zip(VARIABLES, (str(self._folder / "notify"), str(int(self._hang_after_s * 1e6)), ""), strict=True))

    def heard(self) -> set[str]:
        """The lines that the child said since this was last asked."""
        lines: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.update(self._socket.recv(LONGEST_MESSAGE).decode("utf-8", "replace").split("\n"))
        return lines

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _drop() -> None:
    DROPPED.add(1)
    number = int(DROPPED.total)
    if number & (number - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: a line for each would be as many as there were messages
        logs.get(__name__).warning("notify_dropped", messages=number, reason="nobody reads the socket in NOTIFY_SOCKET")
