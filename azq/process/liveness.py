"""Signs of life by systemd's protocol: ready, alive, stopping. `azq up` reads them from its children as systemd does from its services.

In a container, without a listener, the age of a file says the same: health checks look at it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path

from azq import logs
from azq.metrics import Rate
from azq.waiting import WAITS, AwakeClock, meanwhile

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # how a process learns whom to tell, and how often
READY_PID = "NOTIFY_READY_PID"  # the process that said READY
ALIVE_FILE = "AZQ_ALIVE_FILE"  # the variable that names the file
HANG_AFTER_S = 10.0  # a process that said READY and then nothing for so long is killed and started again; the units of systemd say the same
PATIENCE_EVERY_S = 1.0
UNTRIED_S = 300.0  # work that was never done before may take so long: a device loads its kernels, a file system wakes up
STILL_S = 30.0  # and other work between two marks, at least: a step of a large network on a machine that others use
TIMES = 5.0  # or this times the longest of late
LATE_S = 600.0
LONGEST_MESSAGE = 4096  # bytes

DROPPED = Rate()  # messages that found the socket's buffer full: the reader is stuck


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
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.send("\n".join(lines).encode())
    except BlockingIOError:
        _drop()
        return False
    except OSError:
        return False
    return True


def hangs(alive_s: float | None, now_s: float, hang_after_s: float) -> bool:
    """Whether a process that was ready has been silent too long; both times are those of an `AwakeClock`."""
    return alive_s is not None and now_s - alive_s > hang_after_s


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


def may_be_still_s(longest_s: float, *, untried: bool) -> float:
    """Seconds that work may go on without a mark, by how long it lately did at the longest. Pure."""
    return UNTRIED_S if untried else max(STILL_S, TIMES * longest_s)


class WorkWatch:
    """Says that a process lives while its work gets on: work marks its steps, and what takes long between two is borne with.

    `check` is for a thread beside the one that works, all else for that one.
    """

    def __init__(self, say: Callable[[], object] = lambda: None, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._awake_s = AwakeClock(clock)  # a process that was stopped as a whole was not still
        self._doing, self._done = "", set[str]()
        self._marks, self._marked_s = 0, clock()
        self._longest: deque[tuple[float, float]] = deque(maxlen=64)  # when, and how long; short ones change nothing
        self._seen, self._since_s = 0, 0.0
        self.others_get_on: Callable[[], bool] = lambda: True  # else no mark counts

    def mark(self) -> None:
        """The work got on."""
        if not self.others_get_on():
            return
        now_s = self._clock()
        still_s, self._marked_s = now_s - self._marked_s, now_s
        if still_s > STILL_S / TIMES:
            self._longest.append((now_s, still_s))
        self._marks += 1

    @contextlib.contextmanager
    def does(self, what: str) -> Iterator[None]:
        """For the length of a block: a kind of work that may take very long as long as none of it is `done`."""
        before, self._doing = self._doing, what
        self.mark()
        try:
            yield
        finally:
            self._doing = before
            self.mark()

    def done(self, what: str, *, once: bool = True) -> None:
        """Such work was done, or with `once=False` none like what comes next."""
        (self._done.add if once else self._done.discard)(what)

    @property
    def untried(self) -> bool:
        """Whether what is done now was never done before."""
        return bool(self._doing) and self._doing not in self._done

    def check(self) -> None:
        """Says so, unless there was no mark for too long. To be called every `PATIENCE_EVERY_S`."""
        awake_s, now_s = self._awake_s(), self._clock()
        if self._seen != self._marks:
            self._seen, self._since_s = self._marks, awake_s
        longest_s = max((still_s for at_s, still_s in tuple(self._longest) if now_s - at_s < LATE_S), default=0.0)
        if awake_s - self._since_s < may_be_still_s(longest_s, untried=self.untried):
            self._say()

    def beside(self) -> contextlib.AbstractContextManager[None]:
        """Looks in a thread for the length of the block."""

        def looks(ended: threading.Event) -> None:
            while not ended.wait(PATIENCE_EVERY_S):
                self.check()

        return meanwhile("work watch", looks)


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
    """Seconds between WATCHDOG=1 messages: half of what a manager waits. None where this process is not watched."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or os.environ.get("WATCHDOG_PID") not in (None, "", str(os.getpid())):
        return None
    return int(usec) / 2e6


class NotifySocket:
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
        logs.get(__name__).warning("notify_dropped", messages=number, reason="the socket in NOTIFY_SOCKET is not read")
