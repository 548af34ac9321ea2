"""The last evaluation of a finished run: the daemon asks for it by itself, `azq up` waits until its results are in."""

from __future__ import annotations

import time
from collections.abc import Callable

from azq.bus.base import Bus
from azq.config import Config
from azq.ledger import Ledger
from azq.status.observe import read_round, read_weights

LONGEST_WAIT_S = 300.0


def wait_for_evaluation(ledger: Ledger, bus: Bus, run: str, config: Config, wait: Callable[[float], None]) -> bool:
    """Waits until the newest weights were evaluated; False when the run asks for no evaluations or it takes too long."""
    if not config.arena.every_s:
        return False
    deadline = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < deadline:
        if evaluated(ledger, bus, run):
            return True
        wait(0.5)
    return False


def evaluated(ledger: Ledger, bus: Bus, run: str) -> bool:
    """Whether the newest weights had their round and none of its jobs is outstanding."""
    weights = read_weights(bus, run)
    if not weights:
        return True
    latest = read_round(bus, run)
    return latest is not None and latest.weight_version >= weights[0].version and not ledger.jobs(run)
