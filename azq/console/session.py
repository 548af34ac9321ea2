"""The processes of `azq up` from the first child to the last.

Order of a stop, each step only after the one before: the run is paused or finished, self-play and eval workers give their
games back, the learner takes in what is left and writes its checkpoint, then inference, daemon and broker go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from azq import logs
from azq.config import Config, RunConfig
from azq.config.access import with_own_token
from azq.console.remote import url_of
from azq.console.show import Adviser
from azq.console.table import Screen
from azq.errors import BrokerError, ExitCode, StateConflict
from azq.goals import is_spent
from azq.host import rundir
from azq.host.broker_supervisor import BrokerSupervisor
from azq.host.brokers import Brokers
from azq.host.devices import DevicePlan
from azq.host.fronts import children
from azq.host.machine_end import End, MachineWatch, switch_off, watching
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.process.interrupts import Aborted, Interrupts
from azq.process.start import AZQ, child_environment
from azq.process.supervisor import ChildSpec, Supervisor
from azq.queue import KNOWN_TAGS
from azq.status.events import write_command
from azq.status.observe import Watch, read_round, read_weights
from azq.status.summary import RunStatus
from azq.wire.keys import Role
from azq.wire.kinds import BROWSER, Kind, queue_name

TICK_S = 0.1  # between two looks after the children
LOOK_S = 0.5  # and after the run
LONGEST_WAIT_S = 300.0  # for the next job of the last evaluation

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What one `azq up` is about, after all settings were read."""

    config: Config
    run: rundir.RunDir
    until: dict[str, float]
    as_json: bool
    host: Mapping[str, Any] = field(default_factory=dict)  # what the run's preset sets of the host
    volunteers: bool = False  # browsers' tabs may play
    weights: bytes = b""  # that a new run begins with, as a file has them; empty: random ones
    output: TextIO | None = None
    again: str = "azq up"  # with the settings of this host that say where its runs and ports are


def closing_lines(status: RunStatus, start: Start) -> list[str]:
    """What the run came to, and the commands that play, continue and report it."""
    counts, words = status.ledger, start.again.removeprefix("azq up")
    return [
        status.headline,
        f"Games:    {counts.finished:,} finished, {counts.abandoned} abandoned, {counts.duplicates_dropped} duplicates dropped",
        f"Saved to: {start.run.path}",
        f"Play:     azq play{words} --run {status.run}",
        f"Continue: azq up{words} --run {status.run}",
        f"Report:   azq report{words} {status.run}",
    ]


@dataclass
class Session:
    """One `azq up` from the first child to the last."""

    start: Start
    config: Config
    devices: DevicePlan
    ledger: Ledger
    supervisor: Supervisor
    watch: Watch
    interrupts: Interrupts
    brokers: Brokers
    machine: MachineWatch | None = None  # since it works
    spent: End | None = None  # the run ended by what may be spent

    def __post_init__(self) -> None:
        self._keeper = BrokerSupervisor(self.brokers)
        self._adviser = Adviser(self.start.run, self.config, self.watch.bus, time.monotonic)

    def run(self, view: RunView) -> int:
        """Starts everything, watches, drains; returns the exit code."""
        name = self.start.run.name
        try:
            for spec in self.specs():
                self.supervisor.start(spec)
            dashboard = url_of(self.config.daemon) if self.config.daemon.port else ""  # 0: any port, which only the daemon knows
            token = with_own_token(self.config, make=True).daemon.token.get_secret_value()
            shown = Screen(name, as_json=self.start.as_json, output=self.start.output, dashboard=dashboard, token=token)
            with watching(self.config) as self.machine, shown as screen:
                code = self._watch_until_end(screen)
                self.drain(screen)
                last = self.watch.summary(name)
                screen.finish(last, closing_lines(last, self.start))
            return code
        except Aborted:
            self.supervisor.kill()
            log.warning("aborted", run=name, remedy=f"{self.start.again} --run {name} resumes; open games are adopted again")
            return int(ExitCode.INTERRUPTED)
        finally:
            self.supervisor.stop(tuple(self.supervisor.children), threading.Event().wait)
            switch_off((self.machine and self.machine.end) or self.spent, self.config.machine.poweroff_command)

    def specs(self) -> Iterator[ChildSpec]:
        """The children of one machine; other machines' way to the brokers first, and it is the last to go."""
        yield from children(self.brokers.fronts, self.start.run.path / "logs")
        of_tabs = self.config.run.tag == BROWSER  # no self-play in this session
        tag = RunConfig().tag if of_tabs else self.config.run.tag
        tags = [] if tag in KNOWN_TAGS else ["--tags", tag]
        searches = {str(kind): ["worker", "--queues", queue_name(kind, tag), *tags] for kind in Kind}
        searches[Kind.SELFPLAY] += ["--concurrency", str(self.devices.processes)]
        if self.devices.evaluator == "local":
            searches[Kind.SELFPLAY] += ["--set", "worker.evaluator=local"]
        if of_tabs:
            del searches[Kind.SELFPLAY]
        inference = self.devices.inference_children(named=bool(self.config.inference.devices))
        learner = {"learner": ["learner", "--run", self.start.run.name]}
        gateway = {"gateway": ["gateway"]} if self.start.volunteers else {}
        of_role = in_roles(self.config)
        for name, arguments in {"daemon": ["daemon"], **inference, **searches, **gateway, **learner}.items():
            role: Role = arguments[0]  # type: ignore[assignment]  # commands of processes are called as their roles are
            command = [*AZQ, *arguments]
            run = self.start.run.name if role == "learner" else ""
            yield ChildSpec(name, command, self.start.run.log(name), env=child_environment(of_role(role), role), run=run)

    def _watch_until_end(self, screen: Screen) -> int:
        looked_s = 0.0
        while not (self.interrupts.count or (self.machine and self.machine.end)):
            if (failed := self._keeper.revive(self.supervisor)) and not self._goes_on_without(failed):
                return next(iter(failed.values()))
            # A look at a broker that hangs takes seconds, in which no child would be restarted.
            if time.monotonic() - looked_s >= LOOK_S and not self._keeper.silent():
                looked_s = time.monotonic()
                self._keeper.send_away(looked_s)
                if (end := self._observe(screen)) is not None:
                    return end
            self.interrupts.pause(TICK_S)
        return int(ExitCode.OK)

    def _goes_on_without(self, failed: Mapping[str, int]) -> bool:
        """Whether all that was given up are inference workers, whose device is gone perhaps, and another one is left."""
        return failed.keys() < set(self.devices.inference_children())

    def _observe(self, screen: Screen) -> int | None:
        """Shows where the run stands; the exit code where it is over."""
        try:
            summary, state = self.watch.summary(self.start.run.name), self.ledger.run(self.start.run.name)
            summary = dataclasses.replace(summary, conditions=(*summary.conditions, *self._adviser.advise()))
        except BrokerError as error:  # the children wait for it too; an embedded one is started again
            log.warning("broker_away", reason=str(error))
            return None
        screen.show(summary)
        if state.state is RunState.FAILED:
            log.error("run_failed", run=self.start.run.name, reason=state.reason)
            return int(ExitCode.CONFLICT)
        self.spent = End(state.reason) if state.state is RunState.FINISHED and is_spent(state.reason) else None
        return int(ExitCode.OK) if state.state is RunState.FINISHED else None

    def drain(self, screen: Screen) -> None:
        """Ends the children in the order that loses no game."""
        finished = self.ledger.run(self.start.run.name).state is RunState.FINISHED
        screen.note("Stopping: saving open games and the checkpoint (Ctrl-C again to abort)")
        if not finished:
            with contextlib.suppress(StateConflict):
                self.ledger.set_run_state(self.start.run.name, RunState.PAUSED, "azq up was stopped")
                write_command(self.watch.bus, "azq up was stopped", self.start.run.name)
        self._stop("selfplay", "gateway")
        self._stop("learner")
        if finished:
            screen.note("Final evaluation of the newest weights")
            self._await_evaluation()
        self._stop("eval", *(name for name in self.supervisor.children if name.startswith("inference")), "daemon")

    def _stop(self, *names: str) -> None:
        self.supervisor.stop(names, self.interrupts.pause)

    def _await_evaluation(self) -> None:
        """Waits until the daemon's round for the newest weights is over, if there is to be one, as long as jobs of it come to an end."""
        waiting, deadline = -1, 0.0
        while self.config.arena.evaluates and not self._evaluated():
            if (left := len(self.ledger.jobs(self.start.run.name))) != waiting:
                waiting, deadline = left, time.monotonic() + LONGEST_WAIT_S
            if time.monotonic() >= deadline:
                return
            self.supervisor.tick()
            self.interrupts.pause(LOOK_S)

    def _evaluated(self) -> bool:
        """Whether the newest weights had their round and none of its jobs is outstanding."""
        weights = read_weights(self.watch.bus, self.start.run.name)
        latest = read_round(self.watch.bus, self.start.run.name)
        if not weights:
            return True
        requested = latest is not None and latest.weight_version >= weights[0].version
        return requested and not self.ledger.jobs(self.start.run.name)
