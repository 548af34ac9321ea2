"""Small networks, published weights and a serving thread, for tests of nets and inference."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from waiting import PATIENCE_S

from azq.bus.base import Bus, RequestBus
from azq.config import InferenceConfig, NetworkConfig, RunSections, dump_run
from azq.errors import WeightsError
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.engine import Engine, Execution, Mode, Shape
from azq.inference.device.forward import CompletedBatch, Forward, InFlightBatch
from azq.inference.serve.server import InferenceServer
from azq.inference.weights import fetch_from
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.nets import NetSpec, Network, WeightsMeta, build, to_bytes
from azq.search.evaluator import Evaluation
from azq.store import Store
from azq.wire import codec, keys
from azq.wire.messages import LATEST, RunRecord, WeightEvent

RUN = "r1"
GROUPS = (("columns", tuple(tuple(range(column, 84, 7)) for column in range(7))),)
SPEC = NetSpec(planes=2, rows=6, cols=7, scalars=0, num_actions=7, value_size=1, token_groups=GROUPS)
NETWORK = NetworkConfig(blocks=1, channels=16)
CONFIG = InferenceConfig(device="cpu", threads=1, max_batch=256, batch=256, deadline_ms=1.0)
SECTIONS = RunSections(network=NETWORK)


def weights(seed: int, *, version: int = 1, spec: NetSpec = SPEC, network: NetworkConfig = NETWORK, spoil: str = "") -> bytes:
    """Weights whose heads are not zero; `spoil` names a tensor to be filled with NaN."""
    module = build(network, spec, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
            if name == spoil:
                tensor.fill_(float("nan"))
    meta = WeightsMeta("connect_four", version, 10 * version, network=network.model_dump(mode="json"))
    return to_bytes(module, meta)


def observations(count: int, seed: int = 0, spec: NetSpec = SPEC) -> NDArray[np.uint8]:
    """Random packed observations (count, P)."""
    packed = np.random.default_rng(seed).integers(0, 256, (count, spec.packed_size), np.uint8)
    packed[:, spec.plane_bytes :] %= 16
    return packed


class OneRun(Ledger):
    """A ledger of one run, or of those in `views`; counts its reads, and how many runs they name: whole ones, and only glanced at."""

    def __init__(self, run: str = RUN, sections: RunSections = SECTIONS) -> None:
        record = RunRecord(run, json.dumps(dump_run(sections)).encode(), {}, "", 0)
        self.views = {run: RunView(record, RunState.RUNNING, "", 0, 0)}
        self.busy: set[str] = set()
        self.lists = self.looks = self.whole = self.glanced_at = 0

    def names(self) -> list[str]:
        self.lists += 1
        return sorted(self.views)

    def runs(self, names: Sequence[str] | None = None) -> list[RunView]:
        self.looks += 1
        views = [self.views[name] for name in (self.views if names is None else names) if name in self.views]
        self.whole += len(views)
        return views

    def stirring(self, names: Sequence[str]) -> list[str]:
        self.glanced_at += len(names)
        return [name for name in names if name in self.busy or self.views[name].state is RunState.RUNNING]


class Shelf:
    """Where weights lie, and who announces them."""

    def __init__(self, control: Bus, run: str = RUN) -> None:
        self._control = control
        self._run = run
        self.blobs: dict[str, bytes] = {}

    def publish(self, version: int, data: bytes, *, sha256: str | None = None, published_ms: int = 0) -> WeightEvent:
        """Stores and announces; `sha256` overrides the true hash."""
        event = WeightEvent(self._run, version, sha256 or hashlib.sha256(data).hexdigest(), f"shelf:{version}", 10 * version, published_ms)
        self.blobs[event.uri] = data
        self._control.publish(keys.weights(self._run), codec.encode(event))
        return event

    def fetch(self, _view: object) -> Callable[[WeightEvent], bytes]:
        return fetch_from(cast(Store, self))

    def get(self, uri: str, sha256: str) -> bytes:
        """As stores do, it gives out nothing that is not what was announced."""
        data = self.blobs[uri]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise WeightsError(f"blob at {uri} is damaged: not {sha256[:12]}")
        return data


def make_server(
    control: Bus,
    data: RequestBus,
    shelf: Shelf,
    name: str = "inference@test:1",
    config: InferenceConfig = CONFIG,
    engine: Engine | None = None,
    ledger: Ledger | None = None,
) -> InferenceServer:
    """A server of the one run, or of a ledger's."""
    return InferenceServer(control, data, ledger or OneRun(), shelf.fetch, engine or Engine(config), name, lambda _sections: SPEC)


@contextlib.contextmanager
def serving(server: InferenceServer) -> Iterator[None]:
    """Steps a server in a thread of its own; an exception in it fails the test."""
    stop, failures = threading.Event(), []

    def loop() -> None:
        torch.set_num_threads(1)
        try:
            while not stop.is_set():
                server.step(20)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        server.close()
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def ask(client: StreamEvaluator, packed: NDArray[np.uint8], weight_version: int = LATEST) -> Evaluation:
    """Submits and waits."""
    answer = client.result(client.submit(packed, weight_version=weight_version), timeout_s=PATIENCE_S)
    assert answer is not None
    return answer


def same_bits(one: Evaluation, other: Evaluation) -> bool:
    """True when two evaluations are equal bit for bit."""
    return np.array_equal(one.logits.view(np.uint16), other.logits.view(np.uint16)) and np.array_equal(
        one.values.view(np.uint16), other.values.view(np.uint16)
    )


class FakeEngine(Engine):
    """An engine whose forward passes fail as told: `failing` maps a mode to a failing launch, all other modes are as they are."""

    def __init__(
        self,
        failing: dict[Mode, Callable[..., InFlightBatch]],
        config: InferenceConfig = CONFIG,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, now_s=now_s)
        self.failing = failing
        self.built: list[Execution] = []

    def forward(self, reference: Network, execution: Execution, shape: Shape) -> tuple[Network, Forward]:
        self.built.append(execution)
        module, forward = super().forward(reference, execution, shape)
        return module, Failing(forward, execution, self.failing)


class Failing:
    """A forward pass in front of which another may be put, also while it is in service."""

    def __init__(self, forward: Forward, execution: Execution, failing: dict[Mode, Callable[..., InFlightBatch]]) -> None:
        self._forward = forward
        self._execution = execution
        self._failing = failing

    def launch(self, *parts: NDArray[np.uint8]) -> InFlightBatch:
        fail = self._failing.get(self._execution.mode)
        return self._forward.launch(*parts) if fail is None else fail(*parts)

    def refresh(self) -> None:
        self._forward.refresh()


def answering(value: float) -> Callable[..., InFlightBatch]:
    """A launch that answers every leaf with one value."""

    def launch(*parts: NDArray[np.uint8]) -> InFlightBatch:
        count = sum(map(len, parts))
        return CompletedBatch((np.full((count, SPEC.num_actions), value, np.float16), np.full((count, SPEC.value_size), value, np.float16)))

    return launch


def raising(error: Exception) -> Callable[..., InFlightBatch]:
    """A launch that fails."""

    def launch(*_parts: NDArray[np.uint8]) -> InFlightBatch:
        raise type(error)(*error.args)  # a new one, whose traceback keeps nothing alive

    return launch
