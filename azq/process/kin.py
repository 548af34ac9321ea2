"""Whom a drill may hurt: processes that descend from its own `azq up`, by number and start time, at the moment a signal is sent."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from azq.errors import AzqError, NotFound
from azq.process.proc import alive

SETTLE_S = 0.05  # what a stopped process sent before is done by the broker by then
SLOW_SHARE = 0.1  # of each second in which a process that is slowed down works
CHILD = "selfplay-child"  # the process of a self-play worker's pool that plays
COMMANDS = {"daemon": ["daemon"], "inference": ["inference"], "learner": ["learner"], "selfplay": ["worker", "--queues", "selfplay."]}


class NoVictim(AzqError):
    """A process that a fault was meant for is none of the drill's own; nothing was sent to it."""


@contextlib.contextmanager
def borne() -> Iterator[None]:
    """Passes over what a hurt system raises, never over `NoVictim`."""
    try:
        yield
    except NoVictim:
        raise
    except (AzqError, redis.RedisError):
        return


@dataclass(frozen=True, slots=True)
class Victim:
    """A process as it was when it was chosen: psutil tells it from a later one with the same number by its start time."""

    process: psutil.Process
    role: str  # that it was taken for

    @property
    def pid(self) -> int:
        return int(self.process.pid)


@dataclass(frozen=True, slots=True)
class Kin:
    """An `azq up` and the processes below it. Methods raise `NoVictim` for any other, `NotFound` for one that is gone."""

    root: Victim

    @classmethod
    def of(cls, pid: int) -> Kin:
        """Those below the `azq up` that has this number now."""
        return cls(_victim(pid, "azq up"))

    def victim(self, pid: int, role: str) -> Victim:
        """The process that has a number now, if it is one of them."""
        victim = _victim(pid, role)
        self.check(victim)
        return victim

    def check(self, victim: Victim) -> None:
        """Raises where it is none of them, or its number is another process's by now."""
        if not victim.process.is_running():
            if not psutil.pid_exists(victim.pid):
                raise _gone(victim.pid, victim.role)
            raise NoVictim(f"pid {victim.pid}, taken for {victim.role}, is another process by now; nothing was sent to it")
        if not alive(self.root.pid):
            raise NotFound(f"this drill's azq up (pid {self.root.pid}) has ended")
        if victim != self.root and self.root.process not in _ancestors(victim.process):
            raise NoVictim(
                f"pid {victim.pid}, taken for {victim.role}, does not descend from this drill's azq up (pid {self.root.pid}); "
                "nothing was sent to it, as it may be live"
            )

    def send(self, sig: signal.Signals, *victims: Victim) -> None:
        """A signal to some of them; to none where one is refused."""
        for victim in victims:
            self.check(victim)
        for victim in victims:
            try:
                victim.process.send_signal(sig)  # psutil compares start times again
            except psutil.NoSuchProcess:
                raise _gone(victim.pid, victim.role) from None

    def signalled(self, sig: signal.Signals, *victims: Victim) -> Callable[[], None]:
        """Sends processes a signal; returns what lets them go on, and no others that have their numbers by then."""
        self.send(sig, *victims)

        def lift() -> None:
            for victim in victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.process.send_signal(signal.SIGCONT)

        return lift

    def killed_if(self, victim: Victim, is_moment: Callable[[], bool]) -> bool:
        """Stops a process, looks whether its moment is there, which lasts milliseconds, and kills it or lets it go on."""
        self.send(signal.SIGSTOP, victim)
        time.sleep(SETTLE_S)
        struck = is_moment()
        self.send(signal.SIGKILL if struck else signal.SIGCONT, victim)
        return struck

    def braked(self, victim: Victim, check: Callable[[], object] = lambda: None, share: float = SLOW_SHARE) -> Callable[[], None]:
        """Lets a process work that share of the time and calls `check` while it does not; returns what ends that."""
        over = threading.Event()

        def brake() -> None:
            while not over.is_set():
                with contextlib.suppress(NotFound):
                    lift = self.signalled(signal.SIGSTOP, victim)
                    time.sleep(1.0 - share)
                    check()
                    lift()
                over.wait(share)

        thread = threading.Thread(target=brake, daemon=True)
        thread.start()

        def release() -> None:
            over.set()
            thread.join()

        return release

    def processes(self) -> dict[str, Victim]:
        """Its children by role, brokers and a self-play worker's first child among them."""
        by_role: dict[str, Victim] = {}
        for child in _children(self.root.process):
            with contextlib.suppress(psutil.Error):
                if role := role_of(child.cmdline(), Path(child.cwd())):
                    by_role[role] = Victim(child, role)
        if playing := _children(by_role["selfplay"].process) if "selfplay" in by_role else []:
            by_role[CHILD] = Victim(playing[0], CHILD)
        return by_role

    def below(self, victim: Victim) -> list[Victim]:
        """The children of one of them, as what it is."""
        return [Victim(child, victim.role) for child in _children(victim.process)]


def role_of(words: Sequence[str], folder: Path) -> str | None:
    """The role of a child of `azq up`, by its command line, or of a broker by its working folder. Pure."""
    if folder.parent.name == ".broker":
        return f"broker-{folder.name}"
    for role, arguments in COMMANDS.items():
        if "azq" in words and "".join(f"{word}\0" for word in words[words.index("azq") + 1 :]).startswith("\0".join(arguments)):
            return role
    return None


def _victim(pid: int, role: str) -> Victim:
    try:
        return Victim(psutil.Process(pid), role)
    except psutil.NoSuchProcess:
        raise _gone(pid, role) from None


def _gone(pid: int, role: str) -> NotFound:
    return NotFound(f"pid {pid}, taken for {role}, is gone")


def _ancestors(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(process.parents())
    return []


def _children(process: psutil.Process) -> list[psutil.Process]:
    """Its children, oldest first; none where it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sorted(process.children(), key=lambda child: (child.create_time(), child.pid))
    return []
