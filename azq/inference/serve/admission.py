"""From a run's record to what serves it: its shapes, its weight events, its models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from azq.bus.base import Bus
from azq.config import InferenceConfig, NetworkConfig, RunSections
from azq.games import GameFiles
from azq.inference.ask.catalog import WeightCatalog
from azq.inference.device import tuner
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.serve.resident import Fetch, ResidentModels
from azq.inference.serve.served import ServedRun
from azq.inference.serve.trials import LOAD, Trials
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.nets import NetSpec
from azq.wire import keys


class Admission:
    """Makes what serves a run, on one thread; whatever a game raises propagates. A run that kills its worker while it loads is refused."""

    def __init__(
        self,
        control: Bus,
        fetch: Callable[[RunView], Fetch],
        config: InferenceConfig,
        engine: Engine,
        worker: str,
        spec_of: Callable[[RunSections], NetSpec] | None = None,
    ) -> None:
        self._control = control
        self._fetch = fetch
        self._config = config
        self._engine = engine
        self._spec_of = spec_of or specs()
        self._loads = Trials(control, worker, LOAD)
        self._place = f"{host_of(worker)}:{engine.placement.device}"  # unlike the worker it outlives its death

    def __call__(self, view: RunView) -> ServedRun:
        run = view.record.run
        sections = sections_of(view.record)

        def noted() -> AbstractContextManager[None]:
            return self._loads.noted(keys.trial(run, f"load@{self._place}"), f"loading run {run}")

        with noted():
            spec = self._spec_of(sections)

        def make(network: NetworkConfig) -> Model:
            return Model(spec, network, self._config, engine=self._engine)

        models = ResidentModels(make, self._fetch(view), self._config.resident_versions, game=sections.run.game)
        catalog = WeightCatalog(self._control, run)
        return ServedRun(run, spec, catalog, models, lambda model: tuner.tune(model, self._engine, self._config), noted)


def host_of(worker: str) -> str:
    """The host in a worker's name, `<role>@<host>:<pid>`."""
    return worker.partition("@")[2].rpartition(":")[0] or worker


def specs(files: GameFiles = GameFiles()) -> Callable[[RunSections], NetSpec]:
    """The shapes of any run's game; games in Python files only where they are allowed."""
    return lambda sections: NetSpec.of(files.load(sections.run.game, sections.run.params))
