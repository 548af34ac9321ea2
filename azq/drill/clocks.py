"""A self-play worker whose wall clock jumps by an hour, beside the one whose clock is right."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time

from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.host.roles import in_roles
from azq.process.proc import children
from azq.process.start import machine_environment

AFTER_S = 2.0  # of the worker's life
BY_S = 3600.0
END_S = 30.0


def jump(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Starts the worker; healed once games that it finished by its wrong clock are in the learner's log."""
    by_s = rng.choice((-BY_S, BY_S))
    command = [sys.executable, "-m", "azq.drill.skewed", str(AFTER_S), str(by_s), "worker", "--queues", "selfplay.cpu"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")} | machine_environment(
        in_roles(system.config())("worker"), "worker"
    )
    with (system.folder / RUN / "logs" / "skewed.log").open("ab") as log:
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)

    def healed() -> bool:
        system.evidence.read()
        finished_ms = [system.evidence.finished_ms(f"{socket.gethostname()}:{pid}") for pid in children(worker.pid)]
        return any(at_ms and abs(at_ms / 1000 - time.time() - by_s) < BY_S / 2 for at_ms in finished_ms)

    return Harm(healed, lift=lambda: _end(worker))


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(END_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
