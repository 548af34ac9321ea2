"""A CUDA device without one: what azq asks of `torch.cuda`, computed on the CPU, refused where torch refuses.

Work put on a stream runs when somebody waits for it, and a graph repeats the operations it recorded. So what is read or written too
early, or shared between streams, shows as a wrong number on any machine, and memory that nobody wrote is NaN. `FakeCuda().install()`
puts it in torch's place: tensors on the device are tensors of the CPU then. Processes get it with `fake_cuda_site` on their PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

LATER = {torch.ops.aten.copy_.default, torch.ops.aten.fill_.Scalar, torch.ops.aten._foreach_copy_.default}  # what streams put off
WAITS = {"aten::item", "aten::is_nonzero", "aten::_local_scalar_dense", "aten::nonzero"}  # for the device: no graph may hold them
CONVOLUTIONS = {"aten::convolution", "aten::cudnn_convolution_relu", "aten::cudnn_convolution_add_relu"}
QUERIES = 2  # that an event answers with no before its stream gets on
FACTORIES = ("zeros", "zeros_like", "empty", "ones", "full", "tensor", "as_tensor", "arange", "rand", "randn", "randint")
NOT_CAPTURED = "CUDA error: operation not permitted when stream is capturing"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"
GIB = 2**30


class FakeStream:
    """A queue of work; the default stream does its own at once."""

    def __init__(self, *_: object, at_once: bool = False, **__: object) -> None:
        self.at_once = at_once
        self.work: deque[Callable[[], object]] = deque()
        self.ran = 0
        self.captured = 0
        self._running = threading.RLock()

    def put(self, work: Callable[[], object]) -> None:
        self.work.append(work)
        if self.at_once:
            self.synchronize()

    def run_until(self, done: Callable[[], bool]) -> None:
        """One piece of work after the other, by whichever thread waits."""
        if DEVICE.capturing:
            raise RuntimeError(NOT_CAPTURED)
        with self._running:
            while self.work and not done():
                self.ran += 1
                self.work.popleft()()

    def synchronize(self) -> None:
        self.run_until(lambda: False)

    def wait_stream(self, other: FakeStream) -> None:
        event = FakeEvent()
        event.record(other)
        self.wait_event(event)

    def wait_event(self, event: FakeEvent) -> None:
        self.put(event.synchronize)


class FakeEvent:
    """A mark in a stream, which notes the time when the stream gets there."""

    def __init__(self, **_: object) -> None:
        self.at_s: float | None = None
        self.queries = 0

    def record(self, stream: FakeStream | None = None) -> None:
        self.stream, self.at_s = stream or DEVICE.stream, None

        def reached() -> None:
            self.at_s = time.perf_counter()

        self.stream.put(reached)

    def query(self) -> bool:
        self.queries += 1
        if self.queries > QUERIES:
            self.synchronize()
        return self.at_s is not None

    def synchronize(self) -> None:
        self.stream.run_until(lambda: self.at_s is not None)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at_s is not None
        assert end.at_s is not None
        return 1e3 * (end.at_s - self.at_s)


class FakeGraph:
    """Operations with their operands; a replay writes where the recorded ones wrote."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.pool: object = None
        self.invalid = False

    def capture_begin(self, pool: object, *, capture_error_mode: str) -> None:
        cuda = self._cuda
        assert capture_error_mode == "thread_local"
        assert not DEVICE.stream.work
        if pool in cuda.under_way:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        cuda.under_way.add(pool)
        cuda.recorders.add(threading.current_thread().name)
        cuda.searches.add(torch.backends.cudnn.benchmark)
        assert len(cuda.under_way) - len(cuda.spoilt) == 1  # torch takes one capture at a time in a process
        DEVICE.capturing, self.pool = True, pool
        self._recording = _Recording(self, cuda.rows)
        self._recording.__enter__()  # type: ignore[no-untyped-call]

    def capture_end(self) -> None:
        self._recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        DEVICE.capturing = False
        DEVICE.stream.captured += 1
        error = RuntimeError(INVALIDATED) if self.invalid else self._cuda.fail
        if error is not None:
            self._cuda.spoilt.add(self.pool)  # as in torch, which then leaves its pool under way
            raise error
        self._cuda.under_way.remove(self.pool)
        self._cuda.captures.append((DEVICE.stream, self.pool))

    def replay(self) -> None:
        DEVICE.stream.put(self._run)

    def _run(self) -> None:
        with torch.inference_mode():
            for call, given, named, came in self.steps:
                again = call(*given, **named)
                if isinstance(came, torch.Tensor) and came.untyped_storage().data_ptr() != again.untyped_storage().data_ptr():
                    came.copy_(again)


def plan_of(func: Any, args: Any) -> tuple[object, ...]:
    """What cuDNN keeps a chosen kernel for."""
    return func._schema.name, args[0].shape, args[1].shape, args[0].dtype


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, graph: FakeGraph, rows: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph
        self._rows = rows

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        searches = func._schema.name in CONVOLUTIONS and torch.backends.cudnn.benchmark and plan_of(func, args) not in DEVICE.plans
        if func._schema.name in WAITS or searches:  # cuDNN would search for a kernel: this thread never did
            self._graph.invalid = True
            raise RuntimeError(NOT_CAPTURED)
        came = func(*args, **(kwargs or {}))
        if isinstance(came, torch.Tensor) and came.dim() > 1 and len(came) > self._rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self._graph.steps.append((func, args, kwargs or {}, came))
        return came


class _Later(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts copies on the stream in use; notes what cuDNN chooses kernels for."""

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in CONVOLUTIONS:
            DEVICE.plans.add(plan_of(func, args))
        if func not in LATER or DEVICE.capturing:
            return func(*args, **(kwargs or {}))
        DEVICE.stream.put(lambda: func(*args, **(kwargs or {})))
        return None if isinstance(args[0], list) else args[0]


class FakeDevice(threading.local):
    """The stream in use, of each thread."""

    def __init__(self) -> None:
        self.default = self.stream = FakeStream(at_once=True)
        self.capturing = False
        self.plans: set[tuple[object, ...]] = set()

    @contextlib.contextmanager
    def use(self, stream: FakeStream) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            with contextlib.nullcontext() if stream is self.default else _Later():  # type: ignore[no-untyped-call]
                yield
        finally:
            self.stream = before


DEVICE = FakeDevice()


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Bits as a device unpacks them: on a CPU numpy does, which no graph would notice."""
    return ((packed[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(1)[:, :count]


class FakeCuda:
    """Stands in for `torch.cuda`, and for the operations that torch has for CUDA alone."""

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.fail: Exception | None = None  # what the end of the next captures raises
        self.rows = float("inf")  # of the largest tensor that its memory holds
        self.slow: dict[str, float] = {}  # seconds that an operation takes on the device besides, by its name
        self.refused: dict[str, Exception] = {}  # what an operation raises, by its name
        self.recorders: set[str] = set()  # names of the threads that captured
        self.searches: set[bool] = set()  # whether cuDNN tried kernels then
        self.pools = 0
        self.stalls = 0
        self.under_way: set[object] = set()  # pools that a capture allocates from
        self.spoilt: set[object] = set()  # pools of captures that failed to end
        self.captures: list[tuple[FakeStream, object]] = []
        self.capability = (9, 0)

    def install(self, put: Callable[[object, str, object], None] = setattr) -> None:
        """Puts everything in torch's place by `put`, for instance that of a monkeypatch; operations stay in torch once they are there."""
        for name, double in self._surface().items():
            put(torch.cuda, name, double)
        for name in FACTORIES:
            put(torch, name, _on_cpu(getattr(torch, name)))
        put(torch, "empty", _unwritten(torch.empty))
        put(torch._C, "_cuda_endAllocateToPool", self.end_pool)
        put(torch.Tensor, "to", _moved(torch.Tensor.to))
        put(torch.Tensor, "pin_memory", lambda tensor, *_: tensor)
        put(torch.Tensor, "record_stream", lambda *_: None)
        OPERATIONS["fake"] = self
        _add_operations()

    def _surface(self) -> dict[str, object]:
        return {
            "is_available": lambda: self.devices > 0,
            "device_count": lambda: self.devices,
            "is_bf16_supported": lambda including_emulation=True: including_emulation or self.capability >= (8, 0),
            "get_device_capability": lambda *_: self.capability,
            "get_device_name": lambda *_: "fake",
            "get_device_properties": lambda *_: SimpleNamespace(name="fake", total_memory=2 * GIB, uuid="fake"),
            "utilization": lambda *_: 50,
            "power_draw": lambda *_: 300_000,
            "temperature": lambda *_: 40,
            "mem_get_info": lambda *_: (GIB, 2 * GIB),
            "set_device": self.set_device,
            "current_device": lambda: 0,
            "synchronize": self.stall,
            "Stream": FakeStream,
            "Event": FakeEvent,
            "CUDAGraph": functools.partial(FakeGraph, self),
            "graph_pool_handle": self.new_pool,
            "stream": DEVICE.use,
            "current_stream": lambda *_: DEVICE.stream,
            "default_stream": lambda *_: DEVICE.default,
            "device": lambda _device: contextlib.nullcontext(),
            "empty_cache": self.stall,
        }

    def set_device(self, device: torch.device | int) -> None:
        if isinstance(device, torch.device) and device.index is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        if (device if isinstance(device, int) else device.index) >= self.devices:
            raise RuntimeError("CUDA error: invalid device ordinal")

    def stall(self, *_: object) -> None:
        """What waits for all of the device, and keeps every thread's batches waiting."""
        self.stalls += 1

    def new_pool(self) -> int:
        self.pools += 1
        return self.pools

    def end_pool(self, _index: int, pool: object) -> None:
        if pool not in self.under_way:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.under_way.remove(pool)
        self.spoilt.discard(pool)

    def ran(self, name: str) -> None:
        """One operation that torch has for CUDA alone."""
        time.sleep(self.slow.get(name, 0.0))
        if name in self.refused:
            raise self.refused[name]


def _on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A factory of tensors to which the device is the CPU, and pinned memory is memory."""

    @functools.wraps(make)
    def made(*given: Any, device: Any = None, pin_memory: bool = False, **named: Any) -> torch.Tensor:
        return make(*given, device=_host(device), **named)

    return made


def _unwritten(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A factory whose memory holds what may be there."""

    @functools.wraps(make)
    def made(*given: Any, **named: Any) -> torch.Tensor:
        tensor = make(*given, **named)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    return made


def _moved(move: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(move)
    def moved(tensor: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        named = {name: _host(value) for name, value in named.items()}
        return move(tensor, *map(_host, given), **named)

    return moved


def _host(value: Any) -> Any:
    """The CPU in the place of a device; anything else as it is."""
    there = (isinstance(value, torch.device) and value.type in ("cuda", "mps")) or (isinstance(value, str) and value.startswith("cuda"))
    return torch.device("cpu") if there else value


OPERATIONS: dict[str, Any] = {}  # what was added to torch, which cannot be taken back, and the fake that it is told of


def _add_operations() -> None:
    if "library" in OPERATIONS:
        return
    OPERATIONS["library"] = library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, operation in {"cudnn_convolution_relu": _relu, "cudnn_convolution_add_relu": _add_relu, "mm.dtype": _product}.items():
        library.impl(name, operation, "CPU")  # type: ignore[no-untyped-call]


def _relu(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> torch.Tensor:
    """Adds 0 times memory that nobody wrote; NaN becomes 0 in a relu that takes the larger one."""
    return _add_relu(x, weight, torch.full_like(F.conv2d(x, weight, bias, stride, padding, dilation, groups), float("nan")), 0.0, bias,
                     stride, padding, dilation, groups)  # fmt: skip


def _add_relu(x: Any, weight: Any, z: Any, alpha: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> torch.Tensor:
    OPERATIONS["fake"].ran("cudnn_convolution_add_relu")
    if x.shape[1] % 8 or len(weight) % 8:
        raise RuntimeError("FIND was unable to find an engine to execute this computation")
    assert z.shape == (len(x), len(weight), *x.shape[2:])
    return torch.nan_to_num(F.relu(F.conv2d(x, weight, bias, stride, padding, dilation, groups) + alpha * z), nan=0.0, posinf=float("inf"))


def _product(one: torch.Tensor, other: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    OPERATIONS["fake"].ran("mm")
    return (one.float() @ other.float()).to(out_dtype)
