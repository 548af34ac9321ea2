"""Whom a drill may hurt: processes that descend from its own `azq up`, by number and start time, at the moment a signal is sent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from azq.errors import AzqError, NotFound
from azq.process.proc import PROC, alive, children, command, stat_of

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
    """A process as it was when it was chosen: its number alone may be another's by the time a signal is sent."""

    pid: int
    started: int  # clock ticks after the machine's start
    role: str  # that it was taken for


@dataclass(frozen=True, slots=True)
class Kin:
    """An `azq up` and the processes below it. Methods raise `NoVictim` for any other, `NotFound` for one that is gone."""

    root: Victim
    proc: Path = PROC

    @classmethod
    def of(cls, pid: int, proc: Path = PROC) -> Kin:
        """Those below the `azq up` that has this number now."""
        return cls(_victim(pid, "azq up", proc), proc)

    def victim(self, pid: int, role: str) -> Victim:
        """The process that has a number now, if it is one of them."""
        found = _victim(pid, role, self.proc)
        self.check(found)
        return found

    def check(self, victim: Victim) -> None:
        """Raises where it is none of them, or its number is another process's by now."""
        now = _victim(victim.pid, victim.role, self.proc)
        if now.started != victim.started:
            raise NoVictim(f"pid {victim.pid}, taken for {victim.role}, is another process by now; nothing was sent to it")
        if not alive(self.root.pid, self.proc):
            raise NotFound(f"this drill's azq up (pid {self.root.pid}) has ended")
        if victim != self.root and not self._descends(victim.pid):
            raise NoVictim(
                f"pid {victim.pid}, taken for {victim.role}, does not descend from this drill's azq up (pid {self.root.pid}); "
                "nothing was sent to it, as it may be live"
            )

    def send(self, sig: signal.Signals, victim: Victim) -> None:
        """A signal to one of them."""
        with self._aimed(victim) as file:
            signal.pidfd_send_signal(file, sig)

    def signalled(self, sig: signal.Signals, *victims: Victim) -> Callable[[], None]:
        """Sends processes a signal; returns what lets them go on, and no others that have their numbers by then."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(self._aimed(victim)) for victim in victims]
            for file in files:
                signal.pidfd_send_signal(file, sig)
            held = stack.pop_all()

        def lift() -> None:
            with held:
                for file in files:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(file, signal.SIGCONT)

        return lift

    def killed_if(self, victim: Victim, is_moment: Callable[[], bool]) -> bool:
        """Stops a process, looks whether its moment is there, which lasts milliseconds, and kills it or lets it go on."""
        with self._aimed(victim) as file:
            signal.pidfd_send_signal(file, signal.SIGSTOP)
            time.sleep(SETTLE_S)
            found = is_moment()
            signal.pidfd_send_signal(file, signal.SIGKILL if found else signal.SIGCONT)
            return found

    def braked(self, victim: Victim, look: Callable[[], object] = lambda: None, share: float = SLOW_SHARE) -> Callable[[], None]:
        """Lets a process work that share of the time and calls `look` while it does not; returns what ends that."""
        over = threading.Event()

        def brake() -> None:
            while not over.is_set():
                with contextlib.suppress(NotFound, ProcessLookupError):
                    lift = self.signalled(signal.SIGSTOP, victim)
                    time.sleep(1.0 - share)
                    look()
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
        found = {role: child for child in children(self.root.pid, self.proc) if (role := _role(child, self.proc)) is not None}
        if playing := children(found["selfplay"], self.proc) if "selfplay" in found else []:
            found[CHILD] = playing[0]
        return dict(self._there(found))

    def below(self, victim: Victim) -> list[Victim]:
        """The children of one of them, as what it is."""
        return [found for child in children(victim.pid, self.proc) for _, found in self._there({victim.role: child})]

    def _there(self, found: dict[str, int]) -> Iterator[tuple[str, Victim]]:
        for role, pid in found.items():
            with contextlib.suppress(NotFound):
                yield role, _victim(pid, role, self.proc)

    def _descends(self, pid: int) -> bool:
        while (found := stat_of(pid, self.proc)) is not None and found.parent:
            pid = found.parent
            if pid == self.root.pid:
                root = stat_of(pid, self.proc)
                return root is not None and root.started == self.root.started
        return False

    @contextlib.contextmanager
    def _aimed(self, victim: Victim) -> Iterator[int]:
        """A descriptor of a process, which stays its own whatever becomes of its number."""
        try:
            file = os.pidfd_open(victim.pid)
        except ProcessLookupError:
            raise _gone(victim.pid, victim.role) from None
        try:
            self.check(victim)
            yield file
        finally:
            os.close(file)


def _victim(pid: int, role: str, proc: Path) -> Victim:
    if (found := stat_of(pid, proc)) is None:
        raise _gone(pid, role)
    return Victim(pid, found.started, role)


def _gone(pid: int, role: str) -> NotFound:
    return NotFound(f"pid {pid}, taken for {role}, is gone")


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
