"""Trials as runs of a fleet: submitted to its daemon, spread over hardware tags, followed, ended, paused and taken up again over REST."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from azq.client import Client
from azq.config import Config
from azq.config.loading import parse_overrides
from azq.errors import AzqError, ConfigError, DaemonUnavailable, NotFound, StateConflict
from azq.goals import Goals
from azq.host.brokers import resolve
from azq.host.users import in_roles
from azq.ledger.types import RunState
from azq.process.python import AZQ
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor, last_line
from azq.status.compare import flat
from azq.status.schemas import RunOut
from azq.status.studies import Scalar
from azq.status.summary import RunStatus
from azq.sweep.plan import StudyPlan
from azq.sweep.trial import TrialFailed
from azq.wire.keys import Role
from azq.wire.kinds import Kind, queue_name

LOOK_S = 1.0  # between two looks at a run
LEARNER_AFTER_S = 3.0  # without one that lives, before one is started here
LAST_LOOK_S = 300.0  # at most, for the last evaluation of a run that has ended
LEARNER: Role = "learner"

T = TypeVar("T")
Tell = Callable[[str], None]


@dataclass(eq=False)
class FleetRuns:
    """The runs of one daemon; they outlive who follows them. Safe to share between threads."""

    lasting = True

    plan: StudyPlan
    config: Config  # of this host, for learners that are started here
    client: Client
    folder: Path  # for their logs
    tell: Tell
    _running: Counter[str] = field(default_factory=Counter)  # runs by tag
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raises `ConfigError` for a tag that no live worker has, `DaemonUnavailable`."""
        live = {queue.queue for queue in self.client.queues() if queue.slots}
        for tag in self.plan.tags:
            if (queue := queue_name(Kind.SELFPLAY, tag)) not in live:
                raise ConfigError(
                    f"no live worker takes the tag {tag!r} of [study] tags; start one with `azq worker --queues {queue} --tags {tag}`, "
                    f"or name one of {', '.join(sorted(live)) or 'none, as no worker lives'}"
                )

    def open(self, number: int, chosen: Mapping[str, Scalar]) -> FleetRun:
        """Creates the run, or takes up the one that is there. Raises `StateConflict` where that one is another study's."""
        return FleetRun(self, self.plan.run_name(number), chosen)

    def take_up(self, name: str, chosen: Mapping[str, Scalar]) -> str:
        """The tag of a run that is there now, and runs if it was left."""
        try:
            known = self.client.run(name)
        except NotFound:
            return self._create(name, chosen)
        given = dict(flat(known.sections))
        if any(given.get(setting) != value for setting, value in chosen.items()):
            raise StateConflict(f"there is a run {name} with other settings; give the study another name, or `azq runs delete {name}`")
        if known.state is RunState.PAUSED:
            self.client.resume_run(name)
        tag = str(given["run.tag"])
        with self._lock:
            self._running[tag] += 1
        return tag

    def release(self, tag: str) -> None:
        """One run fewer has the tag."""
        with self._lock:
            self._running[tag] -= 1

    def _create(self, name: str, chosen: Mapping[str, Scalar]) -> str:
        with self._lock:
            tag = min(self.plan.tags, key=lambda each: self._running[each])
            self._running[tag] += 1
        until = Goals.parse(self.plan.until).until
        sections = parse_overrides(self.plan.overrides(chosen, tag=tag))
        self.client.create_run(name, game=self.plan.game, preset=self.plan.preset, sections=sections, until=until)
        return tag


class FleetRun:
    """A run of a fleet, with a learner here where it has none elsewhere."""

    def __init__(self, runs: FleetRuns, name: str, chosen: Mapping[str, Scalar]) -> None:
        self.name = name
        self._runs = runs
        self._chosen = chosen
        self._left = threading.Event()
        self._ended = False
        self._away = False
        self._over_s = 0.0  # since when it is finished, and its last evaluation waited for
        self._learner = LearnerHere(runs, name)

    def statuses(self) -> Iterator[RunStatus]:
        tag = self._patiently(lambda: self._runs.take_up(self.name, self._chosen))
        try:
            while not self._left.is_set() and (status := self._patiently(self._status)) is not None:
                yield status
                if status.state is RunState.FAILED:
                    raise TrialFailed(f"trial {self.name} failed: {status.reason}; `azq runs show {self.name}` tells more")
                if self._is_over(status):
                    return
                self._learner.look(status)
                self._left.wait(LOOK_S)
        finally:
            self._learner.stop()
            if tag is not None:
                self._runs.release(tag)

    def end(self) -> None:
        self._ended = True
        self._patiently(lambda: self._change(self._runs.client.finish_run, "the study ended it"))

    def leave(self) -> None:
        self._left.set()
        try:
            self._change(self._runs.client.pause_run, "the study was left")
        except DaemonUnavailable as error:
            self._runs.tell(f"{error}; run {self.name} goes on, and with it the study when it is begun again")

    def _change(self, change: Callable[[str, str], RunOut], reason: str) -> None:
        try:
            change(self.name, reason)
        except (NotFound, StateConflict):  # it has ended by itself, or never began
            return

    def _status(self) -> RunStatus:
        """With the last losses that were recorded where the learner of a run that is over has gone."""
        status = self._runs.client.run_status(self.name)
        if status.state is not RunState.FINISHED or status.loss_policy is not None:
            return status
        columns = self._runs.client.history(self.name, since_ms=0).columns
        last = {name: next((loss for loss in reversed(columns[name]) if loss is not None), None) for name in ("loss_policy", "loss_value")}
        return replace(status, loss_policy=last["loss_policy"], loss_value=last["loss_value"])

    def _is_over(self, status: RunStatus) -> bool:
        """Whether nothing more comes of it: its newest weights were measured, or are waited for in vain."""
        if status.state is not RunState.FINISHED or status.draining:
            return False
        if self._ended or self._runs.plan.metric == "loss":
            return True
        self._over_s = self._over_s or time.monotonic()
        seen = {"errors": status.strength.graded_version, "elo": status.strength.rated_version, "score": status.strength.rated_version}[
            self._runs.plan.metric
        ]
        return (seen or 0) >= status.weight_version or time.monotonic() - self._over_s > LAST_LOOK_S

    def _patiently(self, call: Callable[[], T]) -> T | None:
        """What the daemon answers, however long it is away; None where the run is left meanwhile."""
        while True:
            try:
                answer = call()
            except DaemonUnavailable as error:
                if not self._away:
                    self._runs.tell(f"{error}; waiting, run {self.name} goes on")
                self._away = True
                if self._left.wait(LOOK_S):
                    return None
            else:
                self._away = False
                return answer


class LearnerHere:
    """Starts a learner for a run that has none, where this host reaches the control plane; else says what to do, once."""

    def __init__(self, runs: FleetRuns, name: str) -> None:
        self._runs = runs
        self._name = name
        self._supervisor: Supervisor | None = None
        self._silent_s: float | None = None  # since when nobody learns
        self._told = False
        self._log = runs.folder / f"{name}.log"

    def look(self, status: RunStatus) -> None:
        """Once a second or so. Raises `TrialFailed` for one that no restart mends, where nobody else learns; the run is ended then."""
        if self._supervisor is not None:
            if self._supervisor.look() and not status.learner_live and status.state is RunState.RUNNING:
                self._runs.client.finish_run(self._name, "its learner failed")
                raise TrialFailed(f"trial {self._name}: {last_line(self._log)}; see {self._log}")
        elif status.learner_live or status.state is not RunState.RUNNING:
            self._silent_s = None
        else:
            now_s = time.monotonic()
            self._silent_s = self._silent_s or now_s
            if now_s - self._silent_s > LEARNER_AFTER_S and not self._told:
                self._start()

    def stop(self) -> None:
        """Ends it, if there is one: it drains and writes its checkpoint."""
        if self._supervisor is not None:
            self._supervisor.stop((LEARNER,), time.sleep)

    def _start(self) -> None:
        self._told = True
        try:
            config = in_roles(resolve(self._runs.config))(LEARNER)
        except AzqError:
            self._runs.tell(
                f"run {self._name} has no learner, and no broker is set here; start `azq learner --run {self._name}` "
                f"(`systemctl start azq-learner@{self._name}`) where its folder is to be"
            )
            return
        self._supervisor = Supervisor()
        command = [*AZQ, LEARNER, "--run", self._name]
        self._supervisor.start(ChildSpec(LEARNER, command, self._log, stop_after_s=120.0, env=child_environment(config, LEARNER)))
        self._runs.tell(f"run {self._name} had no learner: one is started here, its log is {self._log}")
