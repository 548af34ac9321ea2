"""The processes of `azq up` from the first child to the last.

Order of a stop, each step only after the one before: the run is paused or finished, self-play and eval workers give their
games back, the learner takes in what is left and writes its checkpoint, then inference, daemon and broker go.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import Config
from azq.config.access import with_own_token
from azq.console.remote import url_of
from azq.console.table import Screen
from azq.errors import BrokerError, ExitCode, StateConflict
from azq.host import rundir
from azq.host.brokers import Brokers
from azq.host.fronts import children
from azq.host.hardware import inference_children, usable_cuda_devices
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.process.interrupts import Aborted, Interrupts
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor, last_line
from azq.status.audit import write_command
from azq.status.observe import read_round, read_weights
from azq.status.watch import Watch
from azq.wire.keys import Role

TICK_S = 0.1  # between two looks after the children
LOOK_S = 0.5  # and after the run
EXPIRE_S = 5.0  # and after machines whose time is over
HANG_AFTER_S = 10.0  # a child that lived and says nothing for so long is killed and started again, as under systemd
BROKER_HANG_AFTER_S = 8.0  # shorter, for all others have to find their way back after it
LONGEST_WAIT_S = 300.0  # for the last evaluation

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What one `azq up` is about, after all settings were read."""

    config: Config
    run: rundir.RunDir
    until: dict[str, float]
    as_json: bool


class Session:
    """One `azq up` from the first child to the last."""

    def __init__(
        self, start: Start, config: Config, ledger: Ledger, supervisor: Supervisor, watch: Watch, interrupts: Interrupts, brokers: Brokers
    ) -> None:
        self._start = start
        self._config = config
        self._ledger = ledger
        self._supervisor = supervisor
        self._watch = watch
        self._interrupts = interrupts
        self._brokers = brokers
        self._name = start.run.name
        self._expire_s = 0.0

    def run(self, view: RunView) -> int:
        """Starts everything, watches, drains; returns the exit code."""
        try:
            for spec in self.specs():
                self._supervisor.start(spec)
            dashboard = url_of(self._config.daemon) if self._config.daemon.port else ""  # 0: any port, which only the daemon knows
            token = with_own_token(self._config, make=True).daemon.token.get_secret_value()
            with Screen(self._name, as_json=self._start.as_json, dashboard=dashboard, token=token) as screen:
                code = self._watch_until_end(screen)
                self._drain(screen)
                screen.note(f"the run lies in {self._start.run.path}; `azq up --run {self._name}` goes on with it")
                screen.show(self._watch.summary(self._name), force=True)
            return code
        except Aborted:
            self._supervisor.kill()
            log.warning("aborted", run=self._name, remedy=f"azq up --run {self._name} resumes; open games are adopted again")
            return int(ExitCode.INTERRUPTED)
        finally:
            self._supervisor.stop(tuple(self._supervisor.children), _patient_wait)

    def specs(self) -> Iterator[ChildSpec]:
        """The children of one machine; other machines' way to the brokers first, and it is the last to go."""
        yield from children(self._brokers.fronts, self._start.run.path / "logs")
        tag = self._config.run.tag
        tags = [] if tag in ("cpu", "cuda", "mps") else ["--tags", tag]
        searches = {
            "selfplay": ["worker", "--queues", f"selfplay.{tag}", *tags],
            "eval": ["worker", "--queues", f"eval.{tag}", *tags],
        }
        serves = self._config.selfplay.evaluator == "stream" or self._config.arena.every_s
        inference = inference_children(self._config.inference, usable_cuda_devices()) if serves else {}
        learner = {"learner": ["learner", "--run", self._name]}
        of_role = in_roles(self._config)
        for name, arguments in {"daemon": ["daemon"], **inference, **searches, **learner}.items():
            role: Role = arguments[0]  # type: ignore[assignment]  # commands of processes are called as their roles are
            log_file = self._start.run.path / "logs" / f"{name}.log"
            yield ChildSpec(name, [sys.executable, "-m", "azq", *arguments], log_file, env=child_environment(of_role(role), role))

    def _watch_until_end(self, screen: Screen) -> int:
        looked_s = 0.0
        while not self._interrupts.count:
            self._revive()
            if failed := self._supervisor.failed():
                name, code = next(iter(failed.items()))
                path = self._start.run.path / "logs" / f"{name}.log"
                log.error("child_given_up", name=name, exit_code=code, reason=last_line(path), log=str(path))
                return code
            # A look at a broker that hangs takes seconds, in which nobody would look after the children.
            if time.monotonic() - looked_s >= LOOK_S and not self._brokers.silent(time.monotonic()):
                looked_s = time.monotonic()
                self._send_away(looked_s)
                if (end := self._look(screen)) is not None:
                    return end
            self._interrupts.wait(TICK_S)
        return int(ExitCode.OK)

    def _revive(self) -> None:
        """Ends brokers that hang, and starts what died again: children after their delay, embedded brokers at once."""
        for role in self._brokers.end_hung(BROKER_HANG_AFTER_S, time.monotonic()):
            log.error("broker_hung", role=role, silent_s=BROKER_HANG_AFTER_S)
        for role in self._brokers.revive():
            log.warning("broker_died", role=role)
        for name, code in self._supervisor.tick(excused=self._brokers.silent(time.monotonic())):
            log.warning("child_died", name=name, exit_code=code, log=str(self._start.run.path / "logs" / f"{name}.log"))

    def _send_away(self, now_s: float) -> None:
        """Machines that joined and whose time is over lose their users."""
        if now_s >= self._expire_s:
            self._expire_s = now_s + EXPIRE_S
            with contextlib.suppress(BrokerError):  # the look that follows says so
                for name in self._brokers.expire(now_ms()):
                    log.info("machine_expired", name=name, remedy="azq join-token lets it in again")

    def _look(self, screen: Screen) -> int | None:
        """Shows where the run stands; the exit code where it is over."""
        try:
            summary, state = self._watch.summary(self._name), self._ledger.run(self._name)
        except BrokerError as error:  # the children wait for it too; an embedded one is started again
            log.warning("broker_away", reason=str(error))
            return None
        screen.show(summary)
        if state.state is RunState.FAILED:
            log.error("run_failed", run=self._name, reason=state.reason)
            return int(ExitCode.CONFLICT)
        return int(ExitCode.OK) if state.state is RunState.FINISHED else None

    def _drain(self, screen: Screen) -> None:
        finished = self._ledger.run(self._name).state is RunState.FINISHED
        screen.note("draining: open games go back to the pool, the learner writes its checkpoint (Ctrl-C again aborts)")
        if not finished:
            with contextlib.suppress(StateConflict):
                self._ledger.set_run_state(self._name, RunState.PAUSED, "azq up was stopped")
                write_command(self._watch.bus, "azq up was stopped", self._name)
        self._stop("selfplay")
        self._stop("learner")
        if finished:
            screen.note("final evaluation of the newest weights")
            wait_for_evaluation(self._ledger, self._watch.bus, self._name, self._config, self._tick_and_wait)
        self._stop("eval", *(name for name in self._supervisor.children if name.startswith("inference")), "daemon")

    def _stop(self, *names: str) -> None:
        self._supervisor.stop(names, self._interrupts.wait)

    def _tick_and_wait(self, seconds: float) -> None:
        self._supervisor.tick()
        self._interrupts.wait(seconds)


def _patient_wait(seconds: float) -> None:
    threading.Event().wait(seconds)


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
