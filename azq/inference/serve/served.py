"""One run as an inference worker serves it: what the serving thread has of it, and what the loading thread does for it.

What one thread writes and the other reads is one reference each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import NetworkConfig, RunSections
from azq.errors import AzqError, StoreError, WeightsError, reason_of
from azq.games import GameFiles
from azq.inference.device.engine import Engine, Execution
from azq.inference.device.model import Model
from azq.inference.device.tuning import BatchLimits, Tuned, tune
from azq.inference.serve.roster import AGAIN, NOT_THE_RUNS
from azq.inference.serve.stats import Stats
from azq.inference.serve.trials import LOAD, Trials
from azq.inference.weights import Fetch, ResidentModels, WeightCatalog
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.nets import NetSpec
from azq.wire import keys
from azq.wire.messages import LATEST, WeightEvent

RETRY_STORE_S = 5.0


@dataclass(eq=False)
class ServedRun:
    """A run for the serving thread: which versions may be evaluated now, and which it waits for."""

    run: str
    spec: NetSpec
    models: ResidentModels
    wanted: set[int] = field(default_factory=set)  # pinned versions that requests wait for; the loading thread empties it
    # Written by the loading thread:
    current: int = 0  # the version that serves, or the last usable one before it; 0: none yet
    tuned: Tuned | None = None
    reasons: dict[int, AzqError] = field(default_factory=dict)  # why wanted versions cannot be had

    @property
    def limits(self) -> BatchLimits:
        return self.tuned.limits if self.tuned else BatchLimits(1, 0.0)

    @property
    def execution(self) -> Execution | None:
        """How the newest weights are executed, which may fall back while they serve."""
        return self.models.execution(self.current)

    def resolve(self, weight_version: int) -> int:
        return self.current if weight_version == LATEST else weight_version

    def ready(self, version: int) -> bool:
        """Whether there is something to say to requests for a version; asks for it to be loaded where not."""
        if version in self.reasons or version in self.models.versions:
            return True
        self.wanted.add(version)
        return False

    def borrow(self, version: int) -> Model | None:
        """A version's model, to be given back; None where it must be waited for. Raises why it cannot be had."""
        model = self.models.borrow(version)
        if model is None and (reason := self.reasons.pop(version, None)):
            raise reason
        return model


@dataclass(eq=False)
class RunLoader:
    """A run for the loading thread: follows its weights and promotions and makes what it loads usable for the serving thread (`served`)."""

    served: ServedRun
    catalog: WeightCatalog
    tune: Callable[[Model, Tuned | None], Tuned]  # of the network before, where there was one
    first: Callable[[], AbstractContextManager[None]]  # surrounds the loading of the first weights
    clock: Callable[[], float] = time.monotonic
    problem: str = field(default="", init=False)  # why the weights that should serve are not used

    def __post_init__(self) -> None:
        self._tuned_for: NetworkConfig | None = None
        self._since_ms = now_ms()
        self._refused: dict[int, float] = {}  # version -> when to try again
        self._failures = 0  # in a row, for unforeseen reasons
        self._prepare_at_s = 0.0
        self._log = logs.get(__name__)

    def follow(self, stats: Stats) -> bool:
        """Makes the version that serves current, or the newest usable one where that is the rule; True after a switch.

        A version that cannot be used is refused and said; the last good one stays.
        """
        for event in self.catalog.preferred():
            if event.version == self.served.current:
                return False
            if self.clock() >= self._refused.get(event.version, 0.0) and self._switch(event, stats):
                return True
        return False

    def load_wanted(self) -> bool:
        """Loads the pinned versions that requests wait for; True when something came of it."""
        served, wanted = self.served, list(self.served.wanted)
        served.wanted.difference_update(wanted)
        for version in wanted:
            try:
                served.models.get(self._event(version), keep=served.current)
            except NOT_THE_RUNS:
                raise
            except AzqError as error:
                served.reasons[version] = error
            except Exception as error:
                served.reasons[version] = WeightsError(f"weights version {version} cannot be loaded: {reason_of(error)}")
        return bool(wanted)

    def prepare(self) -> bool:
        """Makes a spare model ahead, or retries a faster execution of weights that fell back; True when it did."""
        if self.clock() < self._prepare_at_s:
            return False
        models = self.served.models
        try:
            return models.renew(self.served.current) or models.prepare()
        except NOT_THE_RUNS:
            raise
        except Exception as error:  # the next version is loaded without, or says why not
            self._prepare_at_s = self.clock() + AGAIN.longest_s
            self._log.warning("spare_not_made", run=self.served.run, reason=reason_of(error))
            return False

    def _event(self, version: int) -> WeightEvent:
        event = self.catalog.find(version)
        if event is None:
            self.catalog.refresh()
            event = self.catalog.find(version)
        if event is None:
            raise WeightsError(f"run {self.served.run} has published no weights version {version}")
        return event

    def _switch(self, event: WeightEvent, stats: Stats) -> bool:
        served = self.served
        try:
            # Later weights are of a network that lived through its first.
            with nullcontext() if served.current else self.first():
                model = served.models.get(event, keep=served.current)
                if self._tuned_for != model.network:
                    served.tuned, self._tuned_for = self.tune(model, served.tuned), model.network
        except NOT_THE_RUNS:
            raise
        except Exception as error:
            self._refuse(event.version, error)
            return False
        served.current, self.problem, self._failures = event.version, "", 0
        began_ms = max(event.published_ms, self.catalog.promotions.at_ms, self._since_ms)
        stats.weight_switch_s = max(0, now_ms() - began_ms) / 1e3
        self._log.info("weights_switched", run=served.run, version=event.version, seconds=round(stats.weight_switch_s, 3))
        return True

    def _refuse(self, version: int, error: Exception) -> None:
        """Keeps the weights before; those of bytes that are wrong are not tried again."""
        self._failures += 1
        again_s = float("inf") if isinstance(error, WeightsError) else RETRY_STORE_S
        if not isinstance(error, (WeightsError, StoreError)):
            again_s = AGAIN.pause_s(self._failures)
        self._refused[version] = self.clock() + again_s
        self.problem = f"weights version {version}: {reason_of(error)}"
        self._log.warning("weights_refused", run=self.served.run, version=version, serving=self.served.current, error=reason_of(error))


@dataclass
class Admission:
    """Makes what serves a run, on one thread; whatever a game raises propagates. A run that kills its worker while it loads is refused."""

    control: Bus
    fetch: Callable[[RunView], Fetch]
    engine: Engine
    worker: str
    spec_of: Callable[[RunSections], NetSpec]

    def __post_init__(self) -> None:
        self._loads = Trials(self.control, self.worker, LOAD)

    def __call__(self, view: RunView) -> RunLoader:
        run, sections = view.record.run, sections_of(view.record)
        host = self.worker.partition("@")[2].rpartition(":")[0] or self.worker  # of `<role>@<host>:<pid>`
        place = f"{host}:{self.engine.placement.device}"  # unlike the worker it outlives its death

        def noted() -> AbstractContextManager[None]:
            return self._loads.noted(keys.trial(run, f"load@{place}"), f"loading run {run}")

        with noted():
            spec = self.spec_of(sections)

        make, config = partial(Model, spec, engine=self.engine), self.engine.config
        models = ResidentModels(make, self.fetch(view), game=sections.run.game)
        served, catalog = ServedRun(run, spec, models), WeightCatalog(self.control, run, gated=sections.arena.promotes)
        return RunLoader(served, catalog, lambda model, before: tune(model, config, before), noted)


def specs(files: GameFiles) -> Callable[[RunSections], NetSpec]:
    """The shapes of any run's game; games in Python files only where they are allowed."""
    return lambda sections: NetSpec.of(files.load(sections.run.game, sections.run.params))
