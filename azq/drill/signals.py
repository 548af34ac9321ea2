"""Processes that are killed, stopped, slowed down or restarted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time

import redis

from azq.bus.redis import RedisBus
from azq.drill.harm import Harm
from azq.drill.journal import Journal
from azq.drill.scenarios import PROCESSES, Scenario
from azq.drill.system import LEASE_S, RUN, System
from azq.errors import StateConflict
from azq.process.proc import children
from azq.wire import keys

READY_S = 60.0
NO_REQUEST = "0-0"  # the last id of a stream that nobody has written to
SLOW_S = 10.0
SLOW_PART_S = 0.9  # of each second
CREDITS = 8  # requests of one self-play process on their way, and a few times as many entries where it asked again
MOST_ENTRIES = 4 * CREDITS
MOST_GROWTH = 8 << 20  # bytes


def kill(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL; to a self-play worker at a random moment between two journal writes."""
    before = _pid(system, scenario.role)
    lost_s = Journal(system).wait(rng) if scenario.role == "selfplay" else None
    if scenario.fsync:
        with system.client() as client:
            client.config_set("appendfsync", scenario.fsync)
    os.kill(before, signal.SIGKILL)
    return Harm(lambda: system.pid(scenario.role) not in (before, None), search_lost_s=lost_s)


def kill_used(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL to one of several data planes while requests come over it; well again once some come over its successor."""
    before, plane = _pid(system, scenario.role), scenario.role.removeprefix("broker-")
    last = _last_request(system, plane)
    system.until(lambda: _last_request(system, plane) not in (last, NO_REQUEST), f"a request over {plane}", READY_S)
    os.kill(before, signal.SIGKILL)
    return Harm(lambda: system.pid(scenario.role) not in (before, None) and _last_request(system, plane) != NO_REQUEST)


def stop(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGSTOP: a hang, not a death."""
    before = _pid(system, scenario.role)
    os.kill(before, signal.SIGSTOP)
    return Harm(lambda: system.pid(scenario.role) not in (before, None))


def kill_child(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL to the process of a worker's pool that plays."""
    parent, child = _child(system, scenario.role)
    lost_s = Journal(system).wait(rng)
    os.kill(child, signal.SIGKILL)
    return Harm(lambda: _replaced(parent, child), search_lost_s=lost_s)


def stop_child(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGSTOP to the process of a worker's pool that plays."""
    parent, child = _child(system, scenario.role)
    os.kill(child, signal.SIGSTOP)
    return Harm(lambda: _replaced(parent, child))


def sleep_child(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Stops the processes of a pool for longer than their lease lives; they wake with games that are others' by then."""
    parent, _ = _child(system, scenario.role)
    asleep = children(parent)
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)

    def wake() -> None:
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return Harm(lambda: True, lasts_s=LEASE_S + 2.0, lift=wake)


def slow(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Lets inference work a tenth of the time; raises `StateConflict` at the end where requests piled up meanwhile."""
    pid = _pid(system, scenario.role)
    over = threading.Event()
    entries, memory = [0], [_used(system)]

    def brake() -> None:
        while not over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(SLOW_PART_S)
                entries.append(_waiting(system))
                memory.append(_used(system))
                os.kill(pid, signal.SIGCONT)
            over.wait(1.0 - SLOW_PART_S)

    thread = threading.Thread(target=brake, daemon=True)
    thread.start()

    def lift() -> None:
        over.set()
        thread.join()
        if max(entries) > MOST_ENTRIES or max(memory) - memory[0] > MOST_GROWTH:
            raise StateConflict(f"{max(entries)} requests and {max(memory) - memory[0]} bytes piled up before a slow inference worker")

    return Harm(lambda: system.pid(scenario.role) == pid, lasts_s=SLOW_S, lift=lift)


def restart(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGTERM to one role after the other, each when the one before serves again, as for a new version."""
    left = list(PROCESSES)
    now: list[tuple[str, int]] = []

    def healed() -> bool:
        if now and system.pid(now[0][0]) in (now[0][1], None):
            return False
        if not left:
            return True
        role = left[0]
        pid = system.pid(role)
        if pid is not None:
            now[:] = [(role, pid)]
            left.pop(0)
            os.kill(pid, signal.SIGTERM)
        return False

    return Harm(healed)


def _pid(system: System, role: str) -> int:
    return system.until(lambda: system.pid(role), f"{role} at work", READY_S)


def _child(system: System, role: str) -> tuple[int, int]:
    parent = _pid(system, role)
    (child, *_) = system.until(lambda: children(parent), f"a process in the pool of {role} (pid {parent})", READY_S)
    return parent, child


def _replaced(parent: int, child: int) -> bool:
    own = children(parent)
    return bool(own) and child not in own


def _last_request(system: System, plane: str) -> str:
    with contextlib.suppress(redis.RedisError), system.client(plane) as client:  # away, or without a stream as yet
        return bytes(client.xinfo_stream(keys.eval_stream(RUN))["last-generated-id"]).decode()
    return NO_REQUEST


def _waiting(system: System) -> int:
    with system.client("data") as client:
        return RedisBus(client).length(keys.eval_stream(RUN))


def _used(system: System) -> int:
    with system.client("data") as client:
        return int(client.info("memory")["used_memory"])
