"""The last evaluation of a finished run: the daemon asks for it, `azq up` waits until it is in."""

from __future__ import annotations

import time
from collections.abc import Callable

from azq.bus.base import Bus
from azq.ledger import Ledger
from azq.wire.messages import LearnerStatus
from daemon.observe import read_learner, read_weights
from daemon.rounds import outstanding

LONGEST_WAIT_S = 300.0


def learner_status(bus: Bus, run: str) -> LearnerStatus | None:
    """What the run's learner said last."""
    return read_learner(bus, run)


def wait_for_evaluation(ledger: Ledger, bus: Bus, run: str, wait: Callable[[float], None]) -> bool:
    """Waits until the newest weights were evaluated; False when that takes too long."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < deadline:
        weights = read_weights(bus, run)
        if not weights or not outstanding(ledger, bus, run, weights[0].version):
            return True
        wait(0.5)
    return False
