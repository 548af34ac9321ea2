"""`azq up`: broker, daemon, inference, workers and learner as supervised children of one command, and a table that shows them learn.

Order of a stop, each step only after the one before: the run is paused or finished, self-play and eval workers give their
games back, the learner takes in what is left and writes its checkpoint, then inference, daemon and broker go.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from azq import games, logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import Config, RunSections, load
from azq.config.own_token import with_own_token
from azq.console import last_evaluation as final
from azq.console.guests import with_game
from azq.console.remote import url_of
from azq.console.table import Screen
from azq.errors import BrokerError, ConfigError, ExitCode, StateConflict
from azq.games.files import absolute
from azq.goals import Done, Goals
from azq.host import rundir
from azq.host.brokers import BROKER_FOLDER, Brokers, home_lock
from azq.host.devices import inference_children, usable_cuda_devices
from azq.host.fronts import children, parse_listen
from azq.host.restore import create_from_folder, holds_games
from azq.host.roles import NO_USERS, in_roles, knows_roles
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.ledger.types import RunState, RunView
from azq.presets import preset as preset_of
from azq.process.interrupts import Aborted, Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor, last_line
from azq.status.audit import write_command
from azq.status.observe import Watch, read_weights
from azq.wire.gate import agree_on_schema
from azq.wire.keys import Role
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import RunRecord

TICK_S = 0.1  # between two looks after the children
LOOK_S = 0.5  # and after the run
EXPIRE_S = 5.0  # and after machines whose time is over
BROKER_HANG_AFTER_S = 8.0  # shorter than HANG_AFTER_S, for all others have to find their way back after it

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What one `azq up` is about, after all settings were read."""

    config: Config
    run: rundir.RunDir
    until: dict[str, float]
    as_json: bool


def up(
    *,
    game: str | None,
    run: str | None,
    overrides: Sequence[str],
    until: str | None,
    config_file: Path | None,
    as_json: bool,
    preset: str = "",
    listen: str | None = None,
    plaintext: bool = False,
) -> int:
    """Trains until Ctrl-C or the end that was asked for; returns an exit code. `listen`: where other machines reach its brokers."""
    logs.setup("up")
    start = read_start(game, run, overrides, until, config_file, as_json, preset)
    where = parse_listen(listen, plaintext)
    rundir.make_folder(start.run.home)
    with home_lock(start.run.home), Brokers(start.config, start.run.home, where) as brokers:
        config = brokers.apply(start.config)
        if listen:
            if plaintext:
                log.warning("plaintext", reason="everybody on the way reads passwords, games and weights, and may change them")
            log.info("listening", join=f"azq join {config.broker.public_control_url}", token="azq join-token tells it")
        if not knows_roles(config):
            log.warning("one_password", reason=NO_USERS)
        agree_on_schema(brokers.control, upgrade=True)
        ledger = Ledger(brokers.control)
        watch = Watch(brokers.control)
        view = open_run(ledger, watch.bus, start)
        write_command(watch.bus, "azq up", start.run.name)
        supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
        with Interrupts() as interrupts:
            return Session(start, config, ledger, supervisor, watch, interrupts, brokers).run(view)


def read_start(
    game: str | None,
    run: str | None,
    overrides: Sequence[str],
    until: str | None,
    config_file: Path | None,
    as_json: bool,
    preset: str = "",
) -> Start:
    """Settings in their order: preset of the game or the stored run, file, environment, `--set`."""
    machine = load(config_file, [text for text in overrides if text.startswith("home=")])
    game = absolute(game) if game else None
    name = rundir.check_name(run or rundir.name_of(game or machine.run.game))
    folder = rundir.RunDir(machine.home, name)
    if folder.exists():
        if preset:
            raise ConfigError(f"run {name!r} exists and keeps its settings; choose another --run for --preset {preset}, or leave it out")
        base = folder.values()
        if game and game != base["run"]["game"]:
            raise ConfigError(f"run {name!r} learns {base['run']['game']}, not {game}; choose another --run")
    else:
        base = preset_of(game or machine.run.game, preset)
    chosen = [f'run.game="{game}"'] if game else []
    config = load(config_file, [*chosen, *overrides], base=base)
    games.load(config.run.game, **config.run.params)  # an unknown game ends here, before anything starts
    return Start(with_game(config, config.run.game), folder, dict(Goals.parse(until).until), as_json)


def open_run(ledger: Ledger, bus: Bus, start: Start) -> RunView:
    """Creates the run, or resumes it with the settings and the end of now."""
    sections = start.config.run_sections()
    known = {view.record.run: view for view in ledger.runs()}
    if start.run.name in known and not start.run.exists():
        raise StateConflict(
            f"the broker remembers run {start.run.name!r}, but its folder {start.run.path} with games and weights is gone; "
            f"choose another --run, put the folder back, or delete {start.run.home / BROKER_FOLDER} to forget every run of this home"
        )
    start.run.create(sections)
    record = record_of(start.run.name, sections, start.run.path, now_ms(), start.until)
    if start.run.name not in known:
        return _from_folder(ledger, bus, record, sections) if holds_games(start.run.path) else ledger.create_run(record)
    view = known[start.run.name]
    record = msgspec.structs.replace(
        view.record, sections=record.sections, until=_from_here(ledger, bus, view, start.until), directory=record.directory
    )
    ledger.update_run(record)
    return ledger.set_run_state(start.run.name, RunState.RUNNING) if view.state is not RunState.RUNNING else ledger.run(start.run.name)


def _from_folder(ledger: Ledger, bus: Bus, record: RunRecord, sections: RunSections) -> RunView:
    """The broker was lost and the folder was not: the run goes on from there."""
    gone = create_from_folder(ledger, bus, record, sections)
    stored = ledger.counts(record.run).inserted
    log.warning("run_goes_on_from_its_folder", run=record.run, games=stored, written_off=gone)
    return ledger.update_run_until(record.run, _from_here(ledger, bus, ledger.run(record.run), record.until))


def _from_here(ledger: Ledger, bus: Bus, view: RunView, until: dict[str, float]) -> dict[str, float]:
    """A resumed run counts its end from where it stands."""
    weights = read_weights(bus, view.record.run)
    done = Done.of(view.active_ms, ledger.counts(view.record.run).finished, weights[0].step if weights else 0)
    return Goals(until).later(done)


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
        searches = {str(kind): ["worker", "--queues", queue_name(kind, tag), *tags] for kind in Kind}
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
            self._interrupts.pause(TICK_S)
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
            final.wait_for_evaluation(self._ledger, self._watch.bus, self._name, self._config, self._tick_and_wait)
        self._stop("eval", *(name for name in self._supervisor.children if name.startswith("inference")), "daemon")

    def _stop(self, *names: str) -> None:
        self._supervisor.stop(names, self._interrupts.pause)

    def _tick_and_wait(self, seconds: float) -> None:
        self._supervisor.tick()
        self._interrupts.pause(seconds)


def _patient_wait(seconds: float) -> None:
    threading.Event().wait(seconds)
