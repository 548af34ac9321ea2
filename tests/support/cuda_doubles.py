"""A CUDA device without one: work put on a stream runs when somebody waits for it, a graph repeats the operations it recorded.

So what is read or written too early, or shared between streams, shows as a wrong number on any machine.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from azq.config import InferenceConfig
from azq.inference.device import cuda
from azq.inference.device.cuda import Lanes
from azq.inference.device.engine import Engine, Rung
from azq.inference.device.forward import buckets
from azq.inference.device.placement import place

COPY = torch.ops.aten.copy_.default
WAITS = {"aten::item", "aten::is_nonzero", "aten::_local_scalar_dense", "aten::nonzero"}  # for the device: no graph may hold them
QUERIES = 2  # that an event answers with no before its stream gets on


class FakeStream:
    """A queue of work."""

    def __init__(self, *_: object) -> None:
        self.work: deque[Callable[[], object]] = deque()
        self.ran = 0
        self.captured = 0
        self._running = threading.RLock()

    def put(self, work: Callable[[], object]) -> None:
        self.work.append(work)

    def run_until(self, done: Callable[[], bool]) -> None:
        """One piece of work after the other, by whichever thread waits."""
        with self._running:
            while self.work and not done():
                self.ran += 1
                self.work.popleft()()

    def synchronize(self) -> None:
        self.run_until(lambda: False)

    def wait_stream(self, other: FakeStream) -> None:
        other.synchronize()


class FakeEvent:
    """A mark in a stream; elapsed time counts the marks passed."""

    passed = 0

    def __init__(self, **_: object) -> None:
        self.at: int | None = None
        self.queries = 0

    def record(self) -> None:
        self.stream = DEVICE.stream

        def reached() -> None:
            FakeEvent.passed += 1
            self.at = FakeEvent.passed

        self.stream.put(reached)

    def query(self) -> bool:
        self.queries += 1
        if self.queries > QUERIES:
            self.synchronize()
        return self.at is not None

    def synchronize(self) -> None:
        self.stream.run_until(lambda: self.at is not None)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at is not None
        assert end.at is not None
        return float(end.at - self.at)


class FakeGraph:
    """Operations with their operands; a replay writes where the recorded ones wrote."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.pool: object = None

    def replay(self) -> None:
        DEVICE.stream.put(self._run)

    def _run(self) -> None:
        with torch.inference_mode():
            for call, given, named, came in self.steps:
                again = call(*given, **named)
                if isinstance(came, torch.Tensor) and came.untyped_storage().data_ptr() != again.untyped_storage().data_ptr():
                    came.copy_(again)


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, graph: FakeGraph, rows: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph
        self._rows = rows

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in WAITS:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        came = func(*args, **(kwargs or {}))
        if isinstance(came, torch.Tensor) and came.dim() and len(came) > self._rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self._graph.steps.append((func, args, kwargs or {}, came))
        return came


class _Later(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts copies on the stream in use."""

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not COPY:
            return func(*args, **(kwargs or {}))
        into, source = args[0], args[1]
        DEVICE.stream.put(lambda: into.copy_(source))
        return into


class FakeDevice(threading.local):
    """The stream in use, of each thread; the default stream does its work at once."""

    def __init__(self) -> None:
        self.default = self.stream = FakeStream()
        self.chosen: torch.device | None = None

    @contextlib.contextmanager
    def choose(self, device: torch.device) -> Iterator[None]:
        before, self.chosen = self.chosen, device
        try:
            yield
        finally:
            self.chosen = before

    @contextlib.contextmanager
    def use(self, stream: FakeStream) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            with contextlib.nullcontext() if stream is self.default else _Later():  # type: ignore[no-untyped-call]
                yield
        finally:
            self.stream = before


DEVICE = FakeDevice()


def pinned(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
    """Memory locked by the context of the device that the thread chose; without one, torch opens a context on the first device."""
    assert DEVICE.chosen is not None
    return torch.zeros(shape, dtype=kind)


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Bits as a device unpacks them."""
    return ((packed[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(1)[:, :count]


class FakeCuda:
    """Stands in for what `azq.inference.device.cuda` takes of `torch.cuda`."""

    def __init__(self) -> None:
        self.fail: Exception | None = None  # what the end of the next captures raises
        self.rows = float("inf")  # of the largest tensor that its memory holds
        self.recorders: set[str] = set()  # names of the threads that captured
        self.searches: set[bool] = set()  # whether cuDNN tried kernels then
        self.pools = 0
        self.captures: list[tuple[FakeStream, object]] = []
        self.capturing = 0

    def new_pool(self) -> int:
        self.pools += 1
        return self.pools

    @contextlib.contextmanager
    def graph(self, graph: FakeGraph, *, pool: object, stream: FakeStream, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        assert not stream.work
        self.capturing += 1
        self.recorders.add(threading.current_thread().name)
        self.searches.add(torch.backends.cudnn.benchmark)
        assert self.capturing == 1  # torch takes one capture at a time in a process
        DEVICE.stream = stream
        try:
            with _Recording(graph, self.rows):
                yield
        finally:
            self.capturing -= 1
        stream.captured += 1
        if self.fail is not None:
            raise self.fail  # as in torch, whose context manager then leaves its stream in use
        DEVICE.stream = DEVICE.default
        graph.pool = pool
        self.captures.append((stream, pool))


class GraphEngine(Engine):
    """An engine with real lanes and slots that takes the fake device for its own; few sizes, so that each is met often."""

    def __init__(self, config: InferenceConfig) -> None:
        super().__init__(config, place(config))
        self._lanes = Lanes(torch.device("cpu"), search=True)

    def sizes(self, rung: Rung) -> tuple[int, ...]:
        return buckets(rung.max_batch, per_octave=2, smallest=4)


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The fake device in torch's place."""
    fake = FakeCuda()
    for name, double in {
        "Stream": FakeStream,
        "Event": FakeEvent,
        "CUDAGraph": FakeGraph,
        "graph": fake.graph,
        "graph_pool_handle": fake.new_pool,
        "stream": DEVICE.use,
        "current_stream": lambda *_: DEVICE.stream,
        "device": DEVICE.choose,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, double)
    # On a CPU bits are unpacked by numpy, which no graph would notice.
    monkeypatch.setattr(sys.modules["azq.nets.network"], "unpack_bits", unpack_bits, raising=False)
    monkeypatch.setattr(cuda, "_pinned", pinned)
    return fake
