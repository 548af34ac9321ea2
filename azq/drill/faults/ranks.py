"""Processes that train together with the learner: killed, stopped for a while, slowed down, cut off from each other."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

from azq.bus.redis import RedisBus
from azq.drill.faults.signals import braked
from azq.drill.scenarios import RANK, Harm, Scenario, fault
from azq.drill.system import READY_S, RUN, System, signalled
from azq.errors import StateConflict
from azq.process.proc import PROC, children, command
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import LearnerStatus

_PIDFD_GETFD = 438  # pidfd_getfd(2), which neither Python nor glibc before 2.36 calls
_LIBC: Any = ctypes.CDLL(None, use_errno=True)
HELD_S = 10.0  # several times `learner.rank_timeout_s` of these drills


@fault("kill-rank", RANK)
def kill_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL: the learner goes on alone until its launcher's next one has joined."""
    pid, before = _at_work(system)
    os.kill(pid, signal.SIGKILL)
    return Harm(lambda: _lost(system) > before and _all_train(system))


@fault("hold-rank", RANK)
def hold_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGSTOP for longer than others wait for it: it is dropped, and joins again when it goes on."""
    pid, before = _at_work(system)
    return Harm(lambda: _lost(system) > before and _all_train(system), lasts_s=HELD_S, lift=signalled(signal.SIGSTOP, pid))


@fault("slow-rank", RANK)
def slow_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Lets it work a tenth of the time, which nobody is dropped for; raises `StateConflict` at the end where it was."""
    pid, before = _at_work(system)
    release = braked(pid)

    def lift() -> None:
        release()
        if (lost := _lost(system) - before) > 0:
            raise StateConflict(f"{lost} ranks were dropped for being slow")

    return Harm(lambda: _all_train(system), lasts_s=HELD_S, lift=lift)


@fault("cut-rank", RANK)
def cut_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Shuts every connection between it and rank 0, in whatever they tell each other at that moment; both processes live on."""
    pid, before = _at_work(system)
    cut(system.working("learner"), pid)
    return Harm(lambda: _lost(system) > before and _all_train(system))


def cut(one: int, other: int) -> int:
    """Shuts the connections between two processes; returns how many. Raises `StateConflict` where there is none, or none is let go."""
    shut = 0
    with ExitStack() as stack:
        known = {connection.getsockname() for connection in map(stack.enter_context, map(closing, connections(one)))}
        for connection in map(stack.enter_context, map(closing, connections(other))):
            if connection.getpeername() in known:
                connection.shutdown(socket.SHUT_RDWR)
                shut += 1
    if not shut:
        raise StateConflict(f"processes {one} and {other} have no connection that could be cut; run it as their user or as root")
    return shut


def connections(pid: int) -> Iterator[socket.socket]:
    """A process's TCP connections, as sockets of this one that close without harm to it."""
    process = os.pidfd_open(pid)
    try:
        for entry in os.listdir(PROC / str(pid) / "fd"):
            taken = _LIBC.syscall(_PIDFD_GETFD, process, int(entry), 0)
            if taken < 0:
                continue  # closed meanwhile, or not ours to take
            with suppress(OSError):  # no socket
                found = socket.socket(fileno=taken)
                taken = -1
                if found.family in (socket.AF_INET, socket.AF_INET6) and _is_connected(found):
                    yield found
                else:
                    found.close()
            if taken >= 0:
                os.close(taken)
    finally:
        os.close(process)


def _is_connected(found: socket.socket) -> bool:
    with suppress(OSError):
        return bool(found.getpeername())
    return False


def _at_work(system: System) -> tuple[int, int]:
    """The process of a rank that trains, and how many were lost before."""
    system.until(lambda: _all_train(system), "all ranks train", READY_S)
    learner = system.working("learner")
    (rank, *_) = [child for child in children(learner) if "learner" in command(child)]
    return rank, _lost(system)


def _all_train(system: System) -> bool:
    status = _status(system)
    return status is not None and status.ranks_healthy == status.ranks


def _lost(system: System) -> int:
    status = _status(system)
    return status.rank_failures if status is not None else 0


def _status(system: System) -> LearnerStatus | None:
    frame = system.asked(lambda client: RedisBus(client).get(keys.learner_status(RUN)))
    return decode(frame, LearnerStatus) if frame else None
