"""The learner killed at one exact moment: it is stopped when the moment seems to be there, looked at, and killed or let go on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.errors import EvaluationTimeout

CATCH_S = 60.0
SETTLE_S = 0.05  # what a stopped process sent before is done by the broker by then


def kill_unacknowledged(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Between append and acknowledge: games are in the log that the ledger does not know of."""
    segments = system.folder / RUN / "segments"

    def size() -> int:
        return sum(path.stat().st_size for path in segments.glob("*.seg"))

    known = [size()]

    def seems() -> bool:
        before, known[0] = known[0], size()
        return known[0] > before

    def is_there() -> bool:
        time.sleep(SETTLE_S)
        counts = system.counts()
        return counts is not None and system.evidence.read().games > counts.inserted

    return _catch(system, scenario, seems, is_there)


def kill_in_checkpoint(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """In mid-checkpoint: a draft is there that has not got its name."""
    checkpoints = system.folder / RUN / "checkpoints"

    def draft() -> bool:
        return any(name.endswith(".tmp") for name in os.listdir(checkpoints)) if checkpoints.is_dir() else False

    return _catch(system, scenario, draft, draft)


def _catch(system: System, scenario: Scenario, seems: Callable[[], bool], is_there: Callable[[], bool]) -> Harm:
    """Kills the role at the moment; the moments last milliseconds, so this looks without a pause."""
    pid = system.until(lambda: system.pid(scenario.role), f"{scenario.role} at work", CATCH_S)
    deadline = time.monotonic() + CATCH_S
    while time.monotonic() < deadline:
        if not seems():
            continue
        os.kill(pid, signal.SIGSTOP)
        if is_there():
            os.kill(pid, signal.SIGKILL)
            return Harm(lambda: system.pid(scenario.role) not in (pid, None))
        os.kill(pid, signal.SIGCONT)
    raise EvaluationTimeout(f"the moment of {scenario.name} was not caught within {CATCH_S:g} s; run the drill again")
