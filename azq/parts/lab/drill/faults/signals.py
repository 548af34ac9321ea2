"""Processes that are killed, stopped, slowed down or restarted, some of them at one exact moment."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

from azq.bus.redis import RedisBus
from azq.errors import EvaluationTimeout, StateConflict
from azq.parts.lab.drill.faults.brokers import limit
from azq.parts.lab.drill.scenarios import BROKERS, PROCESSES, SECOND_BROKER, InjectedFault, Scenario, fault
from azq.parts.lab.drill.system import LEASE_S, READY_S, RUN, System
from azq.process.kin import Victim
from azq.process.proc import children
from azq.wire import keys

SIGNALS = {"kill": signal.SIGKILL, "kill-child": signal.SIGKILL, "stop": signal.SIGSTOP, "stop-child": signal.SIGSTOP}
NO_REQUEST = "0-0"  # the last id of a stream without entries
SLOW_S = 10.0
SLOW_STEP_S = 25.0
LEAST_SHARE = 0.02  # of each second, in which a process gets something done
CREDITS = 8  # requests of one self-play process on their way, and a few times as many entries where it asked again
MOST_ENTRIES = 4 * CREDITS
MOST_GROWTH = 8 << 20  # bytes
CATCH_S = 60.0


@fault("kill", *PROCESSES, *BROKERS)
@fault("stop", *PROCESSES, *BROKERS)
def strike(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL, to a self-play worker at a random moment between two journal writes; or SIGSTOP: a hang, not a death."""
    before = system.working(scenario.role)
    lost_s = JournalWatch(system).wait(rng) if scenario.loses_search else None
    if scenario.fsync:
        with system.client() as client:
            client.config_set("appendfsync", scenario.fsync)
    system.kin.send(SIGNALS[scenario.fault], before)
    return InjectedFault(lambda: system.replaced(scenario.role, before), search_lost_s=lost_s)


@fault("kill-used", SECOND_BROKER)
def kill_used(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL to one of several data planes while requests come over it; well again once some come over its successor."""
    before, plane = system.working(scenario.role), scenario.role.removeprefix("broker-")
    last = _last_request(system, plane)
    system.until(lambda: _last_request(system, plane) not in (last, NO_REQUEST), f"a request over {plane}", READY_S)
    system.kin.send(signal.SIGKILL, before)
    return InjectedFault(lambda: system.replaced(scenario.role, before) and _last_request(system, plane) != NO_REQUEST)


@fault("kill-child", "selfplay")
@fault("stop-child", "selfplay")
def strike_child(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """The same to the process of a worker's pool that plays."""
    parent, child = _child(system, scenario.role)
    lost_s = JournalWatch(system).wait(rng) if scenario.loses_search else None
    system.kin.send(SIGNALS[scenario.fault], child)
    return InjectedFault(lambda: _replaced(parent.pid, child.pid), search_lost_s=lost_s)


@fault("kill-unacknowledged", "learner")
def kill_unacknowledged(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL between append and acknowledge: games are in the log that the ledger does not know of."""
    segments = system.folder / RUN / "segments"

    def size() -> int:
        return sum(path.stat().st_size for path in segments.glob("*.seg"))

    last = [size()]

    def grows() -> bool:
        before, last[0] = last[0], size()
        return last[0] > before

    return _kill_when(system, scenario, grows, lambda: system.counted(lambda now: system.log_reader.read() > now.inserted))


@fault("kill-in-checkpoint", "learner")
def kill_in_checkpoint(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL in mid-checkpoint: a draft is there that has not got its name."""
    checkpoints = system.folder / RUN / "checkpoints"

    def draft() -> bool:
        return any(name.endswith(".tmp") for name in os.listdir(checkpoints)) if checkpoints.is_dir() else False

    return _kill_when(system, scenario, draft, draft)


@fault("sleep-child", "selfplay")
def sleep_child(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Stops the processes of a pool for longer than their lease lives; they wake with games that are others' by then."""
    parent, _ = _child(system, scenario.role)
    return InjectedFault(lambda: True, lasts_s=LEASE_S + 2.0, lift=system.kin.signalled(signal.SIGSTOP, *system.kin.below(parent)))


@fault("starve-child", "selfplay")
def starve_child(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Lets the process that plays have no more memory than it has, until another is in its place or its job has failed."""
    parent, child = _child(system, scenario.role)
    log, lift = system.log(scenario.role), limit(system, child, resource.RLIMIT_DATA, 1)
    return InjectedFault(lambda: _replaced(parent.pid, child.pid) or log.says("job_failed", "MemoryError"), lift=lift)


@fault("slow", "inference")
def slow(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Lets inference work a tenth of the time; raises `StateConflict` at the end where requests piled up meanwhile."""
    slowed = system.working(scenario.role)
    loads = [_load(system)]
    release = system.kin.braked(slowed, lambda: loads.append(_load(system)))

    def lift() -> None:
        release()
        entries, used = map(max, zip(*loads, strict=True))
        if entries > MOST_ENTRIES or used - loads[0][1] > MOST_GROWTH:
            raise StateConflict(f"{entries} requests and {used - loads[0][1]} bytes piled up before a slow inference worker")

    return InjectedFault(lambda: system.pid(scenario.role) == slowed.pid, lasts_s=SLOW_S, lift=lift)


@fault("slow-step", "learner")
def slow_step(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Lets the learner work so little that a training step takes `SLOW_STEP_S`, as a large network does on a machine that others use.

    Raises `StateConflict` at the end where no step took nearly as long, or where the learner was killed for it.
    """
    slowed, batch_s = system.working(scenario.role), [0.0]

    def sample() -> bool:
        status = system.learner_status()
        batch_s.append(status.batch_s if status is not None else 0.0)
        return batch_s[-1] > 0

    system.until(sample, "a first training step", READY_S)
    release = system.kin.braked(slowed, sample, share=max(LEAST_SHARE, min(1.0, batch_s[-1] / SLOW_STEP_S)))

    def lift() -> None:
        release()
        if system.pid(scenario.role) != slowed.pid:
            raise StateConflict(f"the learner was killed over a step that took its time; the longest before took {max(batch_s):.1f} s")
        if max(batch_s) < SLOW_STEP_S / 2:
            raise StateConflict(f"no training step took longer than {max(batch_s):.1f} s; raise the drill's learner.batch_size")

    return InjectedFault(lambda: system.pid(scenario.role) == slowed.pid, lasts_s=3 * SLOW_STEP_S, lift=lift)


@fault("restart", "all")
def restart(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGTERM to one role after the other, each when the one before serves again, as for a new version."""
    left = list(PROCESSES)
    now: list[Victim] = []

    def healed() -> bool:
        if now and not system.replaced(now[0].role, now[0]):
            return False
        if not left:
            return True
        if (victim := system.victim(left[0])) is not None:
            left.pop(0)
            now[:] = [victim]
            system.kin.send(signal.SIGTERM, victim)
        return False

    return InjectedFault(healed)


class JournalWatch:
    """When the open games were journaled last, as the control plane has it."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._seen: dict[bytes, bytes] = {}
        self._read_s = time.monotonic()
        self._written_s: float | None = None  # the look before the one that saw it: what is lost is never said too small

    def wait(self, rng: random.Random) -> float:
        """Waits for a journal write and then a random part of the interval; returns the seconds since the last write."""
        self._system.until(lambda: self._read() is not None, "a journal write of open games", CATCH_S)
        end_s = time.monotonic() + rng.random() * self._system.journal_s()
        self._system.until(lambda: self._read() is not None and time.monotonic() >= end_s, "the moment of the fault", CATCH_S)
        assert self._written_s is not None
        return time.monotonic() - self._written_s

    def _read(self) -> float | None:
        now = time.monotonic()
        frames: Any = self._system.query(lambda client: client.hgetall(keys.open_games(RUN)))
        if frames is None:
            return self._written_s
        if any(frame and self._seen.get(uid, frame) != frame for uid, frame in frames.items()):
            self._written_s = self._read_s
        self._seen, self._read_s = frames, now
        return self._written_s


def _kill_when(system: System, scenario: Scenario, seems: Callable[[], bool], is_there: Callable[[], bool]) -> InjectedFault:
    """Kills a role at a moment: it is stopped when that seems to be there, and looked at."""
    victim = system.working(scenario.role)
    deadline = time.monotonic() + CATCH_S
    while time.monotonic() < deadline:
        if seems() and system.kin.killed_if(victim, is_there):
            return InjectedFault(lambda: system.replaced(scenario.role, victim))
    raise EvaluationTimeout(f"the moment of {scenario.name} was not caught within {CATCH_S:g} s; run the drill again")


def _child(system: System, role: str) -> tuple[Victim, Victim]:
    parent = system.working(role)
    (child, *_) = system.until(lambda: system.kin.below(parent) or None, f"a process in the pool of {role} (pid {parent.pid})", READY_S)
    return parent, child


def _replaced(parent: int, child: int) -> bool:
    own = children(parent)
    return bool(own) and child not in own


def _last_request(system: System, plane: str) -> str:
    facts: Any = system.query(lambda client: client.xinfo_stream(keys.eval_stream(RUN)), plane)  # none: away, or without a stream as yet
    return bytes(facts["last-generated-id"]).decode() if facts else NO_REQUEST


def _load(system: System) -> tuple[int, int]:
    """Requests that wait, and bytes that their broker uses."""
    with system.client("data") as client:
        return RedisBus(client).length(keys.eval_stream(RUN)), int(client.info("memory")["used_memory"])
