"""A machine at work without systemd: its folder, its services as supervised processes, and its brokers where it is the one others join."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from azq import logs
from azq.config import Config, load
from azq.config.host import TLS_SCHEME
from azq.errors import ConfigError, ExitCode
from azq.files import publish_file
from azq.host import rundir
from azq.host.broker_supervisor import BrokerSupervisor
from azq.host.brokers import Brokers, home_lock
from azq.host.devices import Machine
from azq.host.fronts import FrontPlan, Listen, children, parse_listen
from azq.host.join import plan
from azq.host.join.member import WORKING, holding
from azq.host.join.plan import Service, sizing
from azq.host.machine_end import MachineWatch, switch_off, watching
from azq.host.systemd import install
from azq.host.systemd.steps import RunCommand, Step, carry_out
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.process.interrupts import Aborted, Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.start import AZQ, child_environment
from azq.process.supervisor import Child, ChildSpec, Supervisor, last_line
from azq.wire.connect import SCHEMES, address, agree_on_schema
from azq.wire.keys import Role

LOGS = "logs"
TICK_S = 0.1
LOOK_S = 0.5  # between two looks after brokers and runs
LEARNER_STOP_S = 120.0  # intake of what is left and a last checkpoint

log = logs.get(__name__)


class MachineWork:
    """The services of one machine, from the first child to the last; with a `keeper` its brokers too."""

    def __init__(self, of_role: Callable[[Role], Config], folder: Path, keeper: BrokerSupervisor | None = None) -> None:
        self._of_role = of_role
        self._folder = folder
        self._keeper = keeper
        self._supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
        self._waiting: list[Service] = []
        self._looked_s = 0.0
        self._published: dict[str, str] | None = None

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
            # The machine with the brokers starts before the first run exists.
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
            failed = self._keeper.revive(self._supervisor) if self._keeper else self._supervisor.check()
            if self._supervisor.children and len(failed) == len(self._supervisor.children) and not self._waiting:
                return next(iter(failed.values()))
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._looked_s = time.monotonic()
                self._look_after_brokers()
            self._publish_state()
            interrupts.pause(TICK_S)
        return int(ExitCode.OK)

    def _look_after_brokers(self) -> None:
        keeper = self._keeper
        if keeper is None or keeper.silent():
            return
        keeper.send_away(self._looked_s)
        if self._waiting:
            runs = {view.record.run for view in Ledger(keeper.brokers.control).runs()}
            for service in [candidate for candidate in self._waiting if candidate.instance in runs]:
                self._waiting.remove(service)
                self._supervisor.start(self._child(service))

    def _publish_state(self) -> None:
        """Writes down how each process is, whenever that changes."""
        now = {name: state_of(child) for name, child in self._supervisor.children.items()}
        now |= {service.name: "waits for its run to be created" for service in self._waiting}
        if now != self._published:
            self._published = now
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


LISTENING = (TLS_SCHEME, "redis")  # without TLS where that is what the address says


def listen_of(url: str) -> Listen:
    """Where the brokers are to be reached, of the address that the others will join. Raises `ConfigError`."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or parts.scheme not in LISTENING or parts.username or parts.password:
        raise ConfigError(f"{address(url)} is none of rediss://HOST:PORT/0 without a login; it is this machine's own address")
    listen = parse_listen(f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname, parts.scheme != TLS_SCHEME)
    assert listen is not None
    return listen


def keep_by_systemd(url: str, services: Sequence[Service], echo: Callable[[str], None], *, dry_run: bool, force: bool) -> None:
    """Installs brokers, fronts and daemon as units, and starts them with these services."""
    listen = listen_of(url)
    if listen.plaintext:
        raise ConfigError(f"{address(url)} is plaintext: units listen over TLS alone; write rediss://, or --foreground")
    if not dry_run:
        plan.check_readable(plan.here())
    for line in install.install(dry_run=dry_run, listen=f"{listen.host}:{listen.port}"):
        echo(f"     {line}")
    learners = [service.unit for service in services if service.kind == "learner"]
    names = [plan.TARGET, *(service.unit for service in services if service.unit not in learners)]
    steps: list[Step] = [
        file for candidate in services if candidate.sizing() and (file := sizing(install.UNIT_FOLDER, candidate, force).step)
    ]
    steps += [RunCommand(("systemctl", "daemon-reload")), RunCommand(("systemctl", "enable", "--now", *names))]
    if learners:  # whose run may have to be created first
        steps += [RunCommand(("systemctl", *verb, *learners)) for verb in (("enable",), ("start", "--no-block"))]
    for step in steps:
        echo(f"plan would {step}" if dry_run else f"ok   {carry_out(step)}")


def keep(url: str, services: Sequence[Service], folder: Path, echo: Callable[[str], None]) -> int:
    """Keeps brokers and services alive in the foreground until Ctrl-C; returns the exit code.

    Raises `ConfigError` where this machine cannot listen there, `StateConflict` while another process works in its home.
    """
    config, listen = load(), listen_of(url)
    rundir.make_folder(config.home)
    with holding(folder), home_lock(config.home), Brokers(config, config.home, listen) as brokers:
        config = brokers.apply(config)
        agree_on_schema(brokers.control, upgrade=True)
        echo(f"brokers at {address(url)}, runs in {config.home.absolute()}; `azq join-token` there lets a machine in")
        echo(f"working in the foreground: {', '.join(map(str, services)) or 'brokers alone'}; logs in {folder / LOGS}, Ctrl-C drains")
        return MachineWork(in_roles(config), folder, BrokerSupervisor(brokers)).run(services, brokers.fronts)


def describe(machine: Machine) -> str:
    """A machine in one line."""
    gpus = f", {len(machine.gpus)} GPUs" if machine.gpus else ""
    return f"{machine.host}: {machine.cores} cores, {machine.memory_bytes / (1 << 30):.1f} GiB{gpus}, tags {', '.join(machine.tags)}"
