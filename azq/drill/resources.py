"""Memory and disk that run out."""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Callable

from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System

READY_S = 60.0
FULL_S = 4.0
NONE = 1  # byte
LOG_ROOM = 16 << 10  # bytes that the learner's own log may still grow


def out_of_memory(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A broker without memory for another byte: it refuses all writes, and evicts nothing."""
    return Harm(lambda: True, lasts_s=FULL_S, lift=limit_memory(system, scenario.role.removeprefix("broker-")))


def limit_memory(system: System, plane: str, most: int = NONE) -> Callable[[], None]:
    """Leaves a broker so many bytes, or none; returns what gives them back."""
    with system.client(plane) as client:
        before = str(client.config_get("maxmemory")["maxmemory"])
        client.config_set("maxmemory", most)

    def lift() -> None:
        with system.client(plane) as client:
            client.config_set("maxmemory", before)

    if before == str(NONE):  # whoever took it gives it back
        return lambda: None

    return lift


def disk_full(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """The learner's files may grow no more: writes fail in the middle, as on a full disk. It must say so, live, and go on after it."""
    pid = system.until(lambda: system.pid(scenario.role), f"{scenario.role} at work", READY_S)
    log = system.log(scenario.role)
    lift = limit_files(system, pid)
    try:
        system.until(lambda: log.says("disk_refuses", "segments in"), "a line in the learner's log that the segments take nothing", READY_S)
    except BaseException:
        lift()
        raise
    return Harm(lambda: system.pid(scenario.role) == pid, lasts_s=FULL_S, lift=lift)


def limit_files(system: System, pid: int) -> Callable[[], None]:
    """Lets no file of the learner grow but its log; returns what ends that."""
    newest = max((system.folder / RUN / "segments").glob("*.seg"))
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(newest.stat().st_size, system.log("learner").begins_at + LOG_ROOM) + 1, hard))

    def lift() -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    return lift
