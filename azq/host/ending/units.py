"""A machine's end under systemd: a watch without rights asks for it with a file, and one command of root's carries it out."""

from __future__ import annotations

from pathlib import Path

from azq import logs
from azq.config import Config
from azq.errors import AzqError, ExitCode
from azq.host.ending.deadman import End, Notes
from azq.host.ending.watch import TICK_S, MachineWatch, switch_off
from azq.host.systemd.steps import RunCommand, carry_out
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify

#: what is stopped first, and what only once that has given its work back; `systemctl stop` waits for units that it is told by name alone
ORDER = (
    ("azq-worker@*.service", "azq-gateway.service"),
    ("azq-learner@*.service",),
    ("azq.target", "azq-inference@*.service", "azq-daemon.service"),
    ("azq-front@*.service", "azq-broker@*.service"),
)

log = logs.get(__name__)


def watch(config: Config, folder: Path) -> int:
    """Watches until SIGTERM; returns an exit code."""
    notes = Notes(folder)
    machine = MachineWatch(config, notes.ask, notes, beats=True)
    with Interrupts() as stop:
        notify(READY, "STATUS=watching")
        while not stop.wait(TICK_S):
            machine.look()
            notify(WATCHDOG, f"STATUS=ending: {machine.end.reason}" if machine.end else "STATUS=watching")
        notify(STOPPING)
        machine.leave()
    return int(ExitCode.OK)


def end(config: Config, folder: Path) -> End:
    """Stops the services, whatever fails on the way, then switches the machine off. Raises `StateConflict` where nobody asked."""
    asked = Notes(folder).asked()
    for units in ORDER:
        try:
            log.info("stopping", units=" ".join(units), reason=asked.reason)
            carry_out(RunCommand(("systemctl", "stop", *units)))
        except AzqError as error:
            log.error("not_stopped", units=" ".join(units), reason=str(error))
    switch_off(asked, config.machine.poweroff_command)
    return asked
