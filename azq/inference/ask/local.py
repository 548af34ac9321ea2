"""The evaluator in the caller's own process: no broker between search and network."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from azq.config import InferenceConfig, NetworkConfig
from azq.errors import BrokerError, DeviceError, EvaluatorFailure, WeightsError
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.weights import RESIDENT_VERSIONS, Fetch, ResidentModels, WeightCatalog
from azq.nets import NetSpec, from_bytes, network_of
from azq.nets.device import place
from azq.nets.spec import GameShape
from azq.nets.weights import naming
from azq.search.evaluator import Evaluation
from azq.wire.messages import LATEST

REFRESH_S = 0.5


Source = Callable[[int], Model]  # the model of a version, or the newest for `LATEST`; raises WeightsError when there is none


def fixed_source(model: Model) -> Source:
    """One set of weights, for ever."""

    def source(weight_version: int) -> Model:
        if weight_version not in (LATEST, model.version):
            raise WeightsError(f"weights version {weight_version} are not loaded, only version {model.version} is")
        return model

    return source


class CatalogSource:
    """Every version a run published; the one that serves is used, and of several a bad one leaves the last good one in use."""

    def __init__(
        self, catalog: WeightCatalog, make: Callable[[NetworkConfig], Model], fetch: Fetch, capacity: int = RESIDENT_VERSIONS
    ) -> None:
        self._catalog = catalog
        self._resident = ResidentModels(make, fetch, capacity)
        self._refused: set[int] = set()
        self._refresh_at_s = 0.0

    def __call__(self, weight_version: int) -> Model:
        """Reads new weight events first, at most every `REFRESH_S`."""
        self._refresh(weight_version)
        if weight_version != LATEST:
            event = self._catalog.find(weight_version)
            if event is None:
                raise WeightsError(f"weights version {weight_version} were never published; the newest is in `azq status`")
            return self._resident.get(event)
        for event in self._catalog.preferred():
            if event.version in self._refused:
                continue
            try:
                return self._resident.get(event)
            except WeightsError:
                self._refused.add(event.version)
        raise WeightsError("no usable weights have been published yet; is the learner running?")

    def _refresh(self, weight_version: int) -> None:
        now_s = time.monotonic()
        if now_s < self._refresh_at_s and self._catalog.find(weight_version) is not None:
            return
        self._refresh_at_s = now_s + REFRESH_S
        try:
            self._catalog.refresh()
        except BrokerError:
            if self._catalog.find(weight_version) is None:  # with weights at hand, an outage of the control plane stops nothing
                raise


class LocalEvaluator:
    """Evaluates in another thread, so that the caller may search another group meanwhile."""

    resent = 0

    def __init__(self, source: Source, *, threads: int = 1) -> None:
        self._source = source
        self._cpu_clock = time.thread_time if threads == 1 else time.process_time
        self._worker = ThreadPoolExecutor(1, "evaluator", initializer=torch.set_num_threads, initargs=(threads,))
        self._futures: dict[int, Future[Evaluation]] = {}
        self._next = 0
        self.evaluations = 0
        self.network_cpu_s = 0.0  # in forward passes; on several threads with what else this process does meanwhile

    @classmethod
    def from_bytes(cls, game: GameShape | NetSpec, data: bytes, config: InferenceConfig, *, whole: bool = False) -> LocalEvaluator:
        """An evaluator with the weights in `data`; `whole`: as tabs evaluate, where it can be so. Raises WeightsError."""
        state, meta = from_bytes(data)
        engine = Engine(config, replace(place(config.model_copy(update={"device": "cpu"})), whole="int8") if whole else None)
        model = Model(NetSpec.of(game), network_of(meta), engine)
        model.take(state, meta)
        return cls(fixed_source(model), threads=engine.placement.threads)

    @classmethod
    def from_file(cls, game: GameShape | NetSpec, path: Path, config: InferenceConfig, *, whole: bool = False) -> LocalEvaluator:
        """An evaluator with the weights of a file. Raises WeightsError naming the file."""
        with naming(path):
            return cls.from_bytes(game, path.read_bytes(), config, whole=whole)

    @classmethod
    def from_catalog(cls, game: GameShape | NetSpec, catalog: WeightCatalog, fetch: Fetch, config: InferenceConfig) -> LocalEvaluator:
        """An evaluator that follows a run's weight events; the network is the one that each version describes."""
        engine = Engine(config)
        make = partial(Model, NetSpec.of(game), engine=engine)
        return cls(CatalogSource(catalog, make, fetch), threads=engine.placement.threads)

    @property
    def weight_version(self) -> int:
        """The version that `LATEST` means at this moment."""
        return self._worker.submit(lambda: self._source(LATEST).version).result()

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        self._next += 1
        self._futures[self._next] = self._worker.submit(self._evaluate, packed.copy(), weight_version)
        return self._next

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        """The evaluation, or None after `timeout_s`. Raises EvaluatorFailure for weights that cannot be used."""
        try:
            evaluation = self._futures[handle].result(timeout_s)
        except FutureTimeout:
            return None
        except (WeightsError, DeviceError) as error:
            del self._futures[handle]
            raise EvaluatorFailure(str(error)) from None
        del self._futures[handle]
        return evaluation

    def outcomes(self, packed: NDArray[np.uint8], *, weight_version: int = LATEST) -> NDArray[np.float32]:
        """Probabilities (L, K) of the game's outcomes for the players to move.

        Raises ConfigError for a game without outcomes, WeightsError for weights that cannot be used.
        """
        return self._worker.submit(lambda: self._source(weight_version).outcomes(packed)).result()

    def close(self) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._futures.clear()

    def _evaluate(self, packed: NDArray[np.uint8], weight_version: int) -> Evaluation:
        model = self._source(weight_version)
        begun_s = self._cpu_clock()
        logits, values = model.evaluate(packed)
        self.network_cpu_s += self._cpu_clock() - begun_s
        self.evaluations += len(packed)
        return Evaluation(logits, values, model.version)
