"""One run as an inference worker serves it: its shapes, its weight events, its resident models."""

from __future__ import annotations

import time
from collections.abc import Callable

from azq import logs
from azq.errors import StoreError, WeightsError
from azq.inference.catalog import WeightCatalog
from azq.inference.model import Model, ResidentModels
from azq.inference.stats import Stats
from azq.nets import NetSpec
from azq.wire.messages import LATEST, WeightEvent

RETRY_STORE_S = 5.0


class ServedRun:
    """Weights of one run; the newest usable ones are `current`."""

    def __init__(
        self, run: str, game: str, spec: NetSpec, catalog: WeightCatalog, models: ResidentModels, *, before_load: Callable[[], None]
    ) -> None:
        self.run = run
        self.spec = spec
        self.current = 0  # version; 0: no usable weights yet
        self._game = game
        self._catalog = catalog
        self._models = models
        self._before_load = before_load  # a model in flight must not be overwritten
        self._refused: dict[int, float] = {}  # version -> when to try again
        self._log = logs.get(__name__)

    def follow(self, stats: Stats) -> bool:
        """Reads new weight events and makes the newest usable version current; True after a switch.

        A version that cannot be used is refused and said; the last good one stays.
        """
        self._catalog.refresh()
        for event in self._catalog.newest_first():
            if event.version <= self.current:
                return False
            if time.monotonic() >= self._refused.get(event.version, 0.0) and self._switch(event, stats):
                return True
        return False

    def resolve(self, weight_version: int) -> int:
        """The version that a request means at this moment."""
        return self.current if weight_version == LATEST else weight_version

    def model(self, version: int) -> Model:
        """The model of a version, loaded if need be; WeightsError or StoreError when it cannot be had."""
        event = self._catalog.find(version)
        if event is None:
            self._catalog.refresh()
            event = self._catalog.find(version)
        if event is None:
            raise WeightsError(f"run {self.run} has published no weights version {version}")
        return self._load(event)

    def _switch(self, event: WeightEvent, stats: Stats) -> bool:
        began_s = time.monotonic()
        try:
            self._load(event)
        except (WeightsError, StoreError) as error:
            again_s = RETRY_STORE_S if isinstance(error, StoreError) else float("inf")
            self._refused[event.version] = time.monotonic() + again_s
            self._log.warning("weights_refused", run=self.run, version=event.version, kept=self.current, error=str(error))
            return False
        stats.weight_switch_s = time.monotonic() - began_s
        self.current = event.version
        self._log.info("weights_switched", run=self.run, version=event.version, seconds=round(stats.weight_switch_s, 3))
        return True

    def _load(self, event: WeightEvent) -> Model:
        if event.version not in self._models.versions:
            self._before_load()
        model = self._models.get(event, keep=self.current)
        if model.meta is not None and model.meta.game != self._game:
            raise WeightsError(f"weights version {event.version} of run {self.run} are for {model.meta.game}, the run plays {self._game}")
        return model
