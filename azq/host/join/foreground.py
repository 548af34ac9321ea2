"""A joined machine without systemd: its services as supervised children of this command; Ctrl-C drains, twice aborts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from azq import logs
from azq.config import Config
from azq.errors import ExitCode
from azq.host.hardware import Service
from azq.process.interrupts import Aborted, Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor, last_line

TICK_S = 0.1

log = logs.get(__name__)


def work(config: Config, services: Sequence[Service], folder: Path) -> int:
    """Keeps the services alive until Ctrl-C or until all of them gave up; returns the exit code. Their logs are in the folder."""
    supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
    with Interrupts() as interrupts:
        try:
            for service in services:
                supervisor.start(child(config, service, folder))
            code = _watch(supervisor, interrupts)
            log.info("draining", remedy="open games go back to the pool; Ctrl-C again aborts")
            supervisor.stop(tuple(supervisor.children), interrupts.pause)
            return code
        except Aborted:
            supervisor.kill()
            return int(ExitCode.INTERRUPTED)


def child(config: Config, service: Service, folder: Path) -> ChildSpec:
    """A service as a child process."""
    name = f"{service.kind}@{service.instance}"
    command = [sys.executable, "-m", "azq", *service.command]
    return ChildSpec(name, command, folder / f"{name.replace(':', '+')}.log", env=child_environment(config, service.kind))


def _watch(supervisor: Supervisor, interrupts: Interrupts) -> int:
    """Starts again what died until a stop is asked for or nothing is left that may be started."""
    said: set[str] = set()
    while not interrupts.count:
        for name, code in supervisor.tick():
            log.warning("child_died", name=name, exit_code=code, log=str(supervisor.children[name].spec.log))
        failed = supervisor.failed()
        for name in failed.keys() - said:
            path = supervisor.children[name].spec.log
            log.error("child_given_up", name=name, exit_code=failed[name], reason=last_line(path), log=str(path))
            said.add(name)
        if len(failed) == len(supervisor.children):
            return next(iter(failed.values()))
        interrupts.pause(TICK_S)
    return int(ExitCode.OK)
