"""Brokers and disks without room, and a control plane that loses everything."""

from __future__ import annotations

import contextlib
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable

from azq.drill.processes import signalled
from azq.drill.scenarios import BROKERS, Harm, Scenario, fault
from azq.drill.system import READY_S, RUN, System
from azq.host.brokers import BROKER_FOLDER

FULL_S = 4.0
AWAY_S = 6.0  # of a learner: shorter than what `azq up` takes for a hang
NONE = 1  # byte
LOG_ROOM = 16 << 10  # bytes that the learner's own log may still grow


@fault("out-of-memory", *BROKERS)
def out_of_memory(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A broker without memory for another byte: it refuses all writes, and evicts nothing."""
    return Harm(lambda: True, lasts_s=FULL_S, lift=limit_memory(system, scenario.role.removeprefix("broker-")))


@fault("out-of-memory-for-good", "broker-control")
def fill_control_plane(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Holds the learner while games pile up, leaves the broker no more memory than it uses, and lets the learner go on: nobody helps."""
    pid = system.working("learner")
    before = system.until(system.counts, "the ledger", READY_S)
    go_on = signalled(signal.SIGSTOP, pid)
    try:
        system.rest(time.monotonic() + AWAY_S, "games that wait")
        with system.client() as client:
            used = int(client.info("memory")["used_memory"])
        lift = limit_memory(system, "control", used)
    finally:
        go_on()

    def healed() -> bool:
        counts = system.counts()
        return counts is not None and counts.inserted > before.inserted and not counts.in_transit and system.pid("learner") is not None

    return Harm(healed, lift=lift)


@fault("lost", "broker-control")
def lose_control_plane(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Stops everything, deletes the brokers' files, and starts again: the run has to go on from its folder."""
    before = system.until(system.counts, "the ledger", READY_S)
    stored = system.evidence.read().games
    system.stop()
    shutil.rmtree(system.folder / BROKER_FOLDER)
    system.start()

    def healed() -> bool:
        counts = system.counts()
        return counts is not None and counts.inserted >= stored and counts.opened >= before.inserted

    return Harm(healed)


@fault("disk-full", "learner")
def disk_full(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """The learner's files may grow no more: writes fail in the middle, as on a full disk. It must say so, live, and go on after it."""
    pid, log = system.working(scenario.role), system.log(scenario.role)
    lift = limit_files(system, pid)
    try:
        system.until(lambda: log.says("disk_refuses", "segments in"), "a line in the learner's log that the segments take nothing", READY_S)
    except BaseException:
        lift()
        raise
    return Harm(lambda: system.pid(scenario.role) == pid, lasts_s=FULL_S, lift=lift)


def limit_memory(system: System, plane: str, most: int = NONE) -> Callable[[], None]:
    """Leaves a broker so many bytes, or none; returns what gives them back."""
    with system.client(plane) as client:
        before = str(client.config_get("maxmemory")["maxmemory"])
        client.config_set("maxmemory", most)

    def lift() -> None:
        if before != str(NONE):  # else whoever took it gives it back
            with system.client(plane) as client:
                client.config_set("maxmemory", before)

    return lift


def limit_files(system: System, pid: int) -> Callable[[], None]:
    """Lets no file of the learner grow but its log; returns what ends that."""
    newest = max((system.folder / RUN / "segments").glob("*.seg"))
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(newest.stat().st_size, system.log("learner").begins_at + LOG_ROOM) + 1, hard))

    def lift() -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    return lift
