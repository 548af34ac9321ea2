"""Processes that train together with the learner: killed, stopped for a while, slowed down, cut off from each other, short of memory."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

from azq.errors import NotFound, StateConflict
from azq.parts.lab.drill.scenarios import RANK, Harm, Scenario, fault
from azq.parts.lab.drill.system import READY_S, System
from azq.process.kin import Victim
from azq.process.proc import PROC, command
from azq.wire.ranks import RankStatus

_PIDFD_GETFD = 438  # pidfd_getfd(2), which neither Python nor glibc before 2.36 calls
_LIBC: Any = ctypes.CDLL(None, use_errno=True)
HELD_S = 10.0  # several times `learner.rank_timeout_s` of these drills
LOOKS_S, LOOK_EVERY_S = 3.0, 0.0005  # at a rank's memory, which a pass needs for milliseconds
LEFT = 0.6  # of what passes need, once memory is short: too little for all rows at once, and enough for half of them
FEWEST = 128  # samples a pass, below which a pass needs no more than all else


@fault("kill-rank", RANK)
def kill_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL: the learner goes on alone until its launcher's next one has joined."""
    rank, before = _at_work(system)
    system.kin.send(signal.SIGKILL, rank)
    return Harm(lambda: _lost(system) > before and _all_train(system))


@fault("hold-rank", RANK)
def hold_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGSTOP for longer than others wait for it: it is dropped, and joins again when it goes on."""
    rank, before = _at_work(system)
    return Harm(lambda: _lost(system) > before and _all_train(system), lasts_s=HELD_S, lift=system.kin.signalled(signal.SIGSTOP, rank))


@fault("slow-rank", RANK)
def slow_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Lets it work a tenth of the time, which nobody is dropped for; raises `StateConflict` at the end where it was."""
    rank, before = _at_work(system)
    release = system.kin.braked(rank)

    def lift() -> None:
        release()
        if (lost := _lost(system) - before) > 0:
            raise StateConflict(f"{lost} ranks were dropped for being slow")

    return Harm(lambda: _all_train(system), lasts_s=HELD_S, lift=lift)


@fault("cut-rank", RANK)
def cut_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Shuts every connection between it and rank 0, in whatever they tell each other at that moment; both processes live on."""
    rank, before = _at_work(system)
    cut(system.working("learner").pid, rank.pid)
    return Harm(lambda: _lost(system) > before and _all_train(system))


@fault("starve-rank", RANK)
def starve_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Lets it have less memory than a pass needs, until its passes are smaller; raises `StateConflict` where a step has fewer rows then."""
    rank, _ = _at_work(system)
    if 0 < _rank(system).micro_batch < 2 * FEWEST:  # of earlier rounds: the next one begins with all of it
        system.kin.send(signal.SIGTERM, rank)
        system.until(lambda: _rank(system).micro_batch == 0 and _all_train(system), "a rank with all of its memory", READY_S)
        rank, _ = _at_work(system)
    before = _rank(system).micro_batch or _rank(system).rows
    least, most = _data_bytes(rank.pid)
    system.kin.check(rank)
    had = resource.prlimit(rank.pid, resource.RLIMIT_DATA)
    resource.prlimit(rank.pid, resource.RLIMIT_DATA, (int(least + LEFT * (most - least)), had[1]))

    def lift() -> None:
        with suppress(ProcessLookupError, NotFound):
            system.kin.check(rank)
            resource.prlimit(rank.pid, resource.RLIMIT_DATA, had)
        status = system.learner_status()
        if status is not None and status.each_rank and (rows := sum(rank.rows for rank in status.each_rank)) != _batch(system):
            raise StateConflict(f"a step has {rows} rows of {_batch(system)}")

    return Harm(lambda: 0 < _rank(system).micro_batch < before and _all_train(system), lift=lift)


def _rank(system: System) -> RankStatus:
    """The rank beside the learner, as it was last heard of."""
    status = system.learner_status()
    return status.each_rank[1] if status is not None and len(status.each_rank) > 1 else RankStatus()


def _batch(system: System) -> int:
    return system.config().learner.batch_size


def _data_bytes(pid: int) -> tuple[int, int]:
    """The least and the most memory of its own that a process had while it trained for a while."""
    end, seen = time.monotonic() + LOOKS_S, []
    while time.monotonic() < end:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        seen += [int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")]
        time.sleep(LOOK_EVERY_S)
    return min(seen), max(seen)


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


def _at_work(system: System) -> tuple[Victim, int]:
    """The process of a rank that trains, and how many were lost before."""
    system.until(lambda: _all_train(system), "all ranks train", READY_S)
    learner = system.working("learner")
    (rank, *_) = [child for child in system.kin.below(learner) if "learner" in command(child.pid)]
    return rank, _lost(system)


def _all_train(system: System) -> bool:
    status = system.learner_status()
    return status is not None and status.ranks_healthy == status.ranks


def _lost(system: System) -> int:
    status = system.learner_status()
    return status.rank_failures if status is not None else 0
