"""A machine at work without systemd: its services as supervised processes, and its brokers where it keeps them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from azq import logs
from azq.config import Config
from azq.errors import ExitCode
from azq.files import publish_file
from azq.host.ending.watch import MachineWatch, switch_off, watching
from azq.host.fronts import FrontPlan, children
from azq.host.join.folder import WORKING
from azq.host.join.plan import Service
from azq.host.keeping import BrokerKeeper
from azq.ledger import Ledger
from azq.process.interrupts import Aborted, Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.python import AZQ
from azq.process.start import child_environment
from azq.process.supervisor import Child, ChildSpec, Supervisor, last_line
from azq.wire.keys import Role

LOGS = "logs"
TICK_S = 0.1
LOOK_S = 0.5  # between two looks after brokers and runs
LEARNER_STOP_S = 120.0  # intake of what is left and a last checkpoint

log = logs.get(__name__)


class MachineWork:
    """The services of one machine, from the first child to the last; with a `keeper` its brokers too."""

    def __init__(self, of_role: Callable[[Role], Config], folder: Path, keeper: BrokerKeeper | None = None) -> None:
        self._of_role = of_role
        self._folder = folder
        self._keeper = keeper
        self._supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
        self._waiting: list[Service] = []
        self._looked_s = 0.0
        self._told: dict[str, str] | None = None

    def run(self, services: Sequence[Service], fronts: Iterable[FrontPlan] = ()) -> int:
        """Keeps all alive until Ctrl-C, the machine's end or until everything gave up; returns the exit code."""
        config = self._of_role("worker")
        with Interrupts() as interrupts, watching(config) as machine:
            try:
                code = self._run(services, fronts, interrupts, machine)
                switch_off(machine.end, config.machine.poweroff_command)
                return code
            except Aborted:
                self._supervisor.kill()
                return int(ExitCode.INTERRUPTED)

    def _run(self, services: Sequence[Service], fronts: Iterable[FrontPlan], interrupts: Interrupts, machine: MachineWatch) -> int:
        outer = list(children(fronts, self._folder / LOGS))
        for spec in outer:
            self._supervisor.start(spec)
        for service in services:
            # Whoever keeps the brokers is there before the first run is.
            if self._keeper and service.kind == "learner":
                self._waiting.append(service)
            else:
                self._supervisor.start(self._child(service))
        code = self._watch(interrupts, machine)
        log.info("draining", remedy="open games go back to the pool; Ctrl-C again aborts")
        for names in in_order(self._supervisor.children, [spec.name for spec in outer]):
            self._supervisor.stop(names, interrupts.pause)
        return code

    def _watch(self, interrupts: Interrupts, machine: MachineWatch) -> int:
        """Starts again what died until a stop is asked for, the machine is to end or nothing is left that may be started."""
        while not interrupts.count and machine.end is None:
            failed = self._keeper.revive(self._supervisor) if self._keeper else self._supervisor.look()
            if self._supervisor.children and len(failed) == len(self._supervisor.children) and not self._waiting:
                return next(iter(failed.values()))
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._looked_s = time.monotonic()
                self._look()
            self._tell()
            interrupts.pause(TICK_S)
        return int(ExitCode.OK)

    def _look(self) -> None:
        keeper = self._keeper
        if keeper is None or keeper.silent():
            return
        keeper.send_away(self._looked_s)
        if self._waiting:
            runs = {view.record.run for view in Ledger(keeper.brokers.control).runs()}
            for service in [each for each in self._waiting if each.instance in runs]:
                self._waiting.remove(service)
                self._supervisor.start(self._child(service))

    def _tell(self) -> None:
        """Writes down how each process is, whenever that changes."""
        now = {name: state_of(child) for name, child in self._supervisor.children.items()}
        now |= {service.name: "waits for its run to be created" for service in self._waiting}
        if now != self._told:
            self._told = now
            publish_file(self._folder / WORKING, json.dumps({"pid": os.getpid(), "services": now}).encode(), 0o600)

    def _child(self, service: Service) -> ChildSpec:
        role: Role = service.kind
        command = [*AZQ, *service.command]
        env = {**child_environment(self._of_role(role), role), **dict(service.environment)}
        file = self._folder / LOGS / f"{service.name.replace(':', '+')}.log"
        of_run: dict[str, Any] = {"stop_after_s": LEARNER_STOP_S, "run": service.instance} if role == "learner" else {}
        return ChildSpec(service.name, command, file, **of_run, env=env)


def in_order(names: Iterable[str], outer: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The order of a stop, each part after the one before: who plays, who learns from it, all else, other machines' way to the brokers."""
    rest = [name for name in names if name not in outer]
    plays = tuple(name for name in rest if name.startswith(("worker@selfplay", "gateway")))
    learns = tuple(name for name in rest if name.startswith("learner@"))
    yield from (plays, learns, tuple(name for name in rest if name not in (*plays, *learns)), tuple(outer))


def state_of(child: Child) -> str:
    """How a process is, in a word or a reason."""
    if child.given_up is not None:
        return f"given up: {last_line(child.spec.log)}"
    return "works" if child.process else "is started again"


def same(config: Config) -> Callable[[Role], Config]:
    """The settings of a machine whose one user may do what all its roles may."""
    return lambda role: config
