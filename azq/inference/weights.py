"""The weights of one run: which versions it has published, and those that are held ready to evaluate."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from azq import logs
from azq.bus.base import Bus, Entry
from azq.bus.catalog import VersionCatalog
from azq.bus.promotions import Promotions
from azq.clock import now_ns
from azq.config import NetworkConfig
from azq.errors import AzqError, WeightsError
from azq.inference.device.engine import Execution
from azq.inference.device.model import Model
from azq.nets import from_bytes, network_of
from azq.store import Store
from azq.tracing import SWITCH, TRACES, WEIGHT_VERSION, trace_of
from azq.wire import keys
from azq.wire.messages import LATEST, WeightEvent


class WeightCatalog(VersionCatalog[WeightEvent]):
    """The weight events of one run, by version; `LATEST` is what its promotions say, and in a run that is `gated` begins with the first."""

    def __init__(self, control: Bus, run: str, *, gated: bool = False) -> None:
        super().__init__(control, keys.weights(run), WeightEvent, "weight")
        self.promotions = Promotions(control, run)
        self._gated = gated

    @property
    def last_ids(self) -> dict[str, str]:
        """How far weights and promotions were read, by stream."""
        return {self.stream: self.last_id, self.promotions.stream: self.promotions.last_id}

    def refresh(self) -> bool:
        return self.promotions.refresh() | super().refresh()

    def take(self, entries: Sequence[Entry]) -> None:
        self.promotions.take([entry for entry in entries if entry.stream == self.promotions.stream])
        super().take([entry for entry in entries if entry.stream == self.stream])

    def find(self, version: int) -> WeightEvent | None:
        return next(iter(self.preferred()), None) if version == LATEST else super().find(version)

    def preferred(self) -> list[WeightEvent]:
        """What `LATEST` means, the best first: the version that serves alone, or all, the newest first."""
        if held := self.promotions.version:
            event = super().find(held)
            return [event] if event else []
        return self.newest_first()[-1:] if self._gated else self.newest_first()


RESIDENT_VERSIONS = 8  # of one run, held ready
Fetch = Callable[[WeightEvent], bytes]  # the announced bytes and no others: who fetches verifies, once, as stores do


def fetch_from(store: Store) -> Fetch:
    """Weights as a store has them, verified by it."""
    return lambda event: store.get(event.uri, event.sha256)


class ResidentModels:
    """Versions by least recent use; one thread loads, another may borrow.

    Each version has the network that its weights describe. The least recently used version that is not borrowed is
    overwritten when a new one is needed, by a copy in place where the network is the same.
    """

    def __init__(self, make: Callable[[NetworkConfig], Model], fetch: Fetch, capacity: int = RESIDENT_VERSIONS, *, game: str = "") -> None:
        self._make = make
        self._fetch = fetch
        self._capacity = max(capacity, 2)  # the one in use and the one being loaded
        self._game = game  # that all weights must be for; empty: any
        self._models: OrderedDict[int, Model] = OrderedDict()
        self._borrowed: Counter[int] = Counter()
        self._spares: list[Model] = []
        self._changing = threading.Lock()

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions held, least recently used first."""
        with self._changing:
            return tuple(self._models)

    def get(self, event: WeightEvent, keep: int = 0) -> Model:
        """The model of an event's version, loaded if need be; version `keep` is not overwritten for it.

        Raises WeightsError, StoreError or DeviceError; whatever was resident before still is, except the version overwritten.
        """
        with self._changing:
            if (model := self._used(event.version)) is not None:
                return model
        began_ns = now_ns()
        state, meta = from_bytes(self._fetch(event))  # damaged bytes cost no resident version
        if self._game and meta.game != self._game:
            raise WeightsError(f"weights version {event.version} of run {event.run} are for {meta.game}, the run plays {self._game}")
        model = self._spare(network_of(meta), keep)
        try:
            model.take(state, meta, event.version)
        except AzqError:
            self._spares.append(model)
            raise
        with self._changing:
            self._models[event.version] = model
        TRACES.add((SWITCH, began_ns), [trace_of("weights", event.sha256)], began_ns, below=(WEIGHT_VERSION,), version=event.version)
        return model

    def prepare(self) -> bool:
        """Makes a spare ahead for the network of the newest version while there is room; True when it made one."""
        with self._changing:
            if self._spares or not self._models or len(self._models) >= self._capacity:
                return False
            newest = self._models[max(self._models)]
        self._spares.append(newest.copy())
        return True

    def renew(self, version: int) -> bool:
        """Replaces a model that fell back by one in a faster execution, when it is time to try that; True when it did."""
        with self._changing:
            model = self._models.get(version)
        if model is None or (recovered := model.recovered()) is None:
            return False
        with self._changing:
            self._models[version] = recovered
        logs.get(__name__).info("weights_rose", version=version, execution=str(recovered.execution))
        return True

    def borrow(self, version: int) -> Model | None:
        """A resident version, which is not overwritten until it is given back."""
        with self._changing:
            if (model := self._used(version)) is not None:
                self._borrowed[version] += 1
            return model

    def execution(self, version: int) -> Execution | None:
        """How a resident version is evaluated."""
        with self._changing:
            model = self._models.get(version)
            return model.execution if model else None

    def give_back(self, version: int) -> None:
        with self._changing:
            self._borrowed[version] -= 1

    def _used(self, version: int) -> Model | None:
        if version in self._models:
            self._models.move_to_end(version)
        return self._models.get(version)

    def _spare(self, network: NetworkConfig, keep: int) -> Model:
        fitting = next((spare for spare in self._spares if spare.network == network), None)
        self._spares = [spare for spare in self._spares if spare is not fitting and spare.network == network]
        if fitting is not None:
            return fitting
        with self._changing:
            victim = next((version for version in self._models if version != keep and not self._borrowed[version]), None)
            full = len(self._models) >= self._capacity
            old = self._models.pop(victim) if full and victim is not None else None
        return old if old is not None and old.network == network else self._make(network)
