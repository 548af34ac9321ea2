"""One run as an inference worker serves it: its shapes, its weight events, its resident models.

One thread follows and loads; the other asks for versions and borrows them. What one writes and the other reads is one reference each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from azq import logs
from azq.clock import now_ms
from azq.errors import AzqError, StoreError, WeightsError, reason_of
from azq.inference.ask.catalog import WeightCatalog
from azq.inference.device.model import Model
from azq.inference.device.tuning import Limits, Tuned
from azq.inference.serve.resident import ResidentModels
from azq.inference.serve.stats import Stats
from azq.inference.serve.unserved import AGAIN, NOT_THE_RUNS
from azq.nets import NetSpec
from azq.wire.messages import LATEST, WeightEvent

RETRY_STORE_S = 5.0


class ServedRun:
    """Weights of one run; the newest usable ones are `current`."""

    def __init__(
        self,
        run: str,
        spec: NetSpec,
        catalog: WeightCatalog,
        models: ResidentModels,
        tune: Callable[[Model], Tuned],
        first: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.run = run
        self.spec = spec
        self.catalog = catalog
        self.current = 0  # version; 0: no usable weights yet
        self._models = models
        self._tune = tune
        self._first = first  # surrounds the loading of the first weights
        self._tuned: Tuned | None = None
        self._tuned_for: object = None  # a network
        self._since_ms = now_ms()
        self.problem = ""  # why the newest weights are not used
        self._refused: dict[int, float] = {}  # version -> when to try again
        self._failures = 0  # in a row, for reasons that nobody foresaw
        self._prepare_at_s = 0.0
        self._wanted: set[int] = set()  # pinned versions that requests wait for
        self._reasons: dict[int, AzqError] = {}  # why wanted versions cannot be had
        self._log = logs.get(__name__)

    # -- the loading thread

    def follow(self, stats: Stats) -> bool:
        """Makes the newest usable version current; True after a switch.

        A version that cannot be used is refused and said; the last good one stays.
        """
        for event in self.catalog.newest_first():
            if event.version <= self.current:
                return False
            if time.monotonic() >= self._refused.get(event.version, 0.0) and self._switch(event, stats):
                return True
        return False

    def load_wanted(self) -> bool:
        """Loads the pinned versions that requests wait for; True when something came of it."""
        wanted = list(self._wanted)
        self._wanted.difference_update(wanted)
        for version in wanted:
            try:
                self._models.get(self._event(version), keep=self.current)
            except NOT_THE_RUNS:
                raise
            except AzqError as error:
                self._reasons[version] = error
            except Exception as error:
                self._reasons[version] = WeightsError(f"weights version {version} cannot be loaded: {reason_of(error)}")
        return bool(wanted)

    def prepare(self) -> bool:
        """Makes a spare model ahead; True when it made one."""
        if time.monotonic() < self._prepare_at_s:
            return False
        try:
            return self._models.prepare()
        except NOT_THE_RUNS:
            raise
        except Exception as error:  # the next version is loaded without, or says why not
            self._prepare_at_s = time.monotonic() + AGAIN.longest_s
            self._log.warning("spare_not_made", run=self.run, reason=reason_of(error))
            return False

    # -- the serving thread

    @property
    def limits(self) -> Limits:
        """When a batch of this run may go."""
        return self._tuned.limits if self._tuned else Limits(1, 0.0)

    def resolve(self, weight_version: int) -> int:
        """The version that a request means at this moment."""
        return self.current if weight_version == LATEST else weight_version

    def ready(self, version: int) -> bool:
        """Whether there is something to say to requests for a version; asks for it to be loaded where not."""
        if version in self._reasons or version in self._models.versions:
            return True
        self._wanted.add(version)
        return False

    def borrow(self, version: int) -> Model | None:
        """A version's model, to be given back; None where it must be waited for. Raises why it cannot be had."""
        model = self._models.borrow(version)
        if model is None and (reason := self._reasons.pop(version, None)):
            raise reason
        return model

    def give_back(self, version: int) -> None:
        """Ends a loan."""
        self._models.give_back(version)

    def observe(self, leaves: int, latency_s: float) -> None:
        """Notes what a batch took that had the device for itself."""
        if self._tuned:
            self._tuned.observe(leaves, latency_s)

    def _event(self, version: int) -> WeightEvent:
        event = self.catalog.find(version)
        if event is None:
            self.catalog.refresh()
            event = self.catalog.find(version)
        if event is None:
            raise WeightsError(f"run {self.run} has published no weights version {version}")
        return event

    def _switch(self, event: WeightEvent, stats: Stats) -> bool:
        try:
            # Later weights are of a network that lived through its first.
            with nullcontext() if self.current else self._first():
                model = self._models.get(event, keep=self.current)
                if self._tuned_for != model.network:
                    self._tuned, self._tuned_for = self._tune(model), model.network
        except NOT_THE_RUNS:
            raise
        except Exception as error:
            self._refuse(event.version, error)
            return False
        self.current, self.problem, self._failures = event.version, "", 0
        stats.weight_switch_s = max(0, now_ms() - max(event.published_ms, self._since_ms)) / 1e3
        self._log.info("weights_switched", run=self.run, version=event.version, seconds=round(stats.weight_switch_s, 3))
        return True

    def _refuse(self, version: int, error: Exception) -> None:
        """Keeps the weights before; those of bytes that are wrong are not tried again."""
        self._failures += 1
        again_s = float("inf") if isinstance(error, WeightsError) else RETRY_STORE_S
        if not isinstance(error, (WeightsError, StoreError)):
            again_s = AGAIN.pause_s(self._failures)
        self._refused[version] = time.monotonic() + again_s
        self.problem = f"weights version {version}: {reason_of(error)}"
        self._log.warning("weights_refused", run=self.run, version=version, kept=self.current, error=reason_of(error))
