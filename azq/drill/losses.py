"""What stays when the control plane is lost, or is full and nobody helps it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time

from azq.drill.harm import Harm
from azq.drill.resources import limit_memory
from azq.drill.scenarios import Scenario
from azq.drill.system import System
from azq.host.brokers import BROKER_FOLDER

READY_S = 60.0
AWAY_S = 6.0  # of a learner: shorter than what `azq up` takes for a hang


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


def fill_control_plane(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Holds the learner while games pile up, leaves the broker no more memory than it uses, and lets the learner go on: nobody helps."""
    pid = system.until(lambda: system.pid("learner"), "the learner at work", READY_S)
    before = system.until(system.counts, "the ledger", READY_S)
    os.kill(pid, signal.SIGSTOP)
    try:
        end_s = time.monotonic() + AWAY_S
        system.until(lambda: time.monotonic() >= end_s, "games that wait", AWAY_S + READY_S)
        with system.client() as client:
            used = int(client.info("memory")["used_memory"])
        lift = limit_memory(system, "control", used)
    finally:
        os.kill(pid, signal.SIGCONT)

    def healed() -> bool:
        counts = system.counts()
        return counts is not None and counts.inserted > before.inserted and not counts.in_transit and system.pid("learner") is not None

    return Harm(healed, lift=lift)
