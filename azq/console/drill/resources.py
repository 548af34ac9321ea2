"""Memory and disk that run out."""

from __future__ import annotations

import random
import resource

from azq.console.drill.harm import Harm
from azq.console.drill.scenarios import Scenario
from azq.console.drill.system import RUN, System

READY_S = 60.0
FULL_S = 4.0
LOG_ROOM = 16 << 10  # bytes that the learner's own log may still grow


def out_of_memory(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A broker without memory for another byte: it refuses all writes, and evicts nothing."""
    plane = scenario.role.removeprefix("broker-")
    with system.client(plane) as client:
        before = str(client.config_get("maxmemory")["maxmemory"])
        client.config_set("maxmemory", 1)

    def lift() -> None:
        with system.client(plane) as client:
            client.config_set("maxmemory", before)

    return Harm(lambda: True, lasts_s=FULL_S, lift=lift)


def disk_full(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """The learner's files may grow no more: writes fail in the middle, as on a full disk. It must say so, live, and go on after it."""
    pid = system.until(lambda: system.pid(scenario.role), f"{scenario.role} at work", READY_S)
    log = system.log(scenario.role)
    newest = max((system.folder / RUN / "segments").glob("*.seg"))
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(newest.stat().st_size, log.begins_at + LOG_ROOM) + 1, hard))

    def lift() -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    try:
        system.until(lambda: log.says("disk_refuses", "segments in"), "a line in the learner's log that the segments take nothing", READY_S)
    except BaseException:
        lift()
        raise
    return Harm(lambda: system.pid(scenario.role) == pid, lasts_s=FULL_S, lift=lift)
