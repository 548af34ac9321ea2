"""CUDA graphs: one per batch size, so that a batch costs one launch, and the next is always queued behind the one that computes.

All versions of a network share them: weights are copied over those that the graphs read, on the stream that computes, when another
version is evaluated than before. So only the first version of a shape of network records; by the thread that loads weights, before it
serves: to record takes long, and cuDNN searches for kernels again on each thread. The thread that serves only replays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from math import inf, isfinite, nan
from typing import Any, cast
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray

from azq import logs
from azq.errors import reason_of
from azq.inference.device.forward import CaptureRefused, Failure, Outputs, bucket_of, classify, gather
from azq.inference.device.kernels import Pass
from azq.nets import NetSpec
from azq.nets.device import device_mark
from azq.phases import DeviceEvent

SLOTS = 3  # batches in flight: one computes, one waits behind it, one is copied or answered
WARM_UPS = 3  # runs before capture, in which cuDNN chooses its kernels and torch.compile compiles
COMPILED_FROM = 0.25  # of the largest batch: each size is compiled by itself, which takes its time, and small ones gain little
MOST_COMPILED = 64  # kinds of calls for which a process compiles: large sizes, of all shapes of networks that it meets
APART = 64  # float16 in a buffer before the logits, which are to begin where the device reads and writes best
LOG_EVERY_S = 5.0  # between lines of the log about a recording that lasts


class DeviceClock:
    """Adds up the time in which some batch computed; `make_event` makes a timing mark, recorded on the stream in use.

    Batches end in the order in which they began; one that another thread waited for at the same moment may be counted twice or not at all.
    """

    def __init__(self, make_event: Callable[[], DeviceEvent]) -> None:
        self._make_event = make_event
        self._ended: DeviceEvent | None = None  # of the batch that was counted last
        self.busy_s = 0.0

    def mark(self) -> DeviceEvent:
        """A mark at this point of the stream in use."""
        event = self._make_event()
        event.record()
        return event

    def count(self, begin: DeviceEvent, end: DeviceEvent) -> None:
        """Counts a finished batch, as far as it did not run while the one before it did."""
        lengths = [begin.elapsed_time(end)]
        if self._ended is not None:
            lengths.append(self._ended.elapsed_time(end))
        self._ended = end
        self.busy_s += max(0.0, min(lengths)) / 1e3


class CudaStreams:
    """What all graphs of a device share: its streams, their memory, a clock; with `search` cuDNN tries kernels in warm-ups.

    One stream computes, so that graphs, replayed one after the other, may share a pool; copies run beside it. Nothing ever runs on the
    stream that captures: cuBLAS has a workspace for each stream, and that of the captured stream goes into the graph. So it must come
    out of the pool, and no batch that runs beside a replay may have it.
    """

    def __init__(self, device: torch.device, *, search: bool = False) -> None:
        self.device = device
        self.capturing = threading.Lock()  # a process may capture one graph at a time
        self._search = search
        self.clock = DeviceClock(partial(device_mark, blocking=True))
        self.progress = ""  # for those that wait
        self._logged_s = float("-inf")
        self.compute, self.copy_in, self.copy_out, self._warm_up, self._capture = (
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(5)
        )
        self._pool: Any = None
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self._spoilt: list[torch.cuda.CUDAGraph] = []  # torch's allocator may go on asking them

    def synchronize(self) -> None:
        """Waits for what this thread put on its current stream, as copies into parameters: other streams are not ordered after it."""
        torch.cuda.current_stream(self.device).synchronize()

    def report(self, recorded: int, graphs: int) -> None:
        """How far the recording of a network's graphs is."""
        self.progress = f"recording graphs: {recorded} of {graphs}" if recorded < graphs else ""
        if self.progress and time.monotonic() - self._logged_s > LOG_EVERY_S:
            self._logged_s = time.monotonic()
            logs.get(__name__).info("recording_graphs", recorded=recorded, graphs=graphs, device=str(self.device))

    def record(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The graph of what `body` launches, after it ran some times. One thread at a time."""
        with torch.cuda.device(self.device), torch.inference_mode(), _searching(self._search):
            self._warm_up.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self._warm_up):
                for _ in range(WARM_UPS):
                    body()
            self._warm_up.synchronize()
            with self.capturing:  # and no longer: kernels may be searched and compiled above, while a thread that serves waits for this
                return self._captured(body)

    def _captured(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """By hand: `torch.cuda.graph` would wait for the whole device and give its free memory back, beside batches of others."""
        others = list(self._graphs)  # torch refuses a pool whose last graph is gone, so they stay until this one is there
        if not others:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._capture):
                # thread_local: the other thread goes on launching batches meanwhile, which would end a capture in global mode.
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    body()
                finally:
                    graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # raised where nothing is left to end: the capture ended as it should, and the pool stays
                torch._C._cuda_endAllocateToPool(self.device.index or 0, self._pool)
                self._spoilt.append(graph)
                self._graphs = WeakSet()  # so that the next capture has a pool that is not under way
            raise
        self._graphs.add(graph)
        return graph


class GraphBatch:
    """A replayed graph; its outputs lie in pinned memory until the slot is used again, so `wait` copies them out once.

    Lets go of the slot once it is over, however it ended: a smaller batch may need the memory.
    """

    def __init__(self, slot: Slot, count: int, size: int, began: DeviceEvent, computed: DeviceEvent, ended: DeviceEvent) -> None:
        self._slot: Slot | None = slot
        self._count, self._size = count, size
        self.began, self.computed, self._ended = began, computed, ended
        self._result: tuple[Outputs, bool] | RuntimeError = RuntimeError("not waited for")

    def done(self) -> bool:
        try:
            return self._slot is None or self._ended.query()
        except RuntimeError:
            return True

    def wait(self) -> Outputs:
        return self._finish()[0]

    def finite(self) -> bool:
        """What the device saw of its outputs, rows of padding included."""
        return self._finish()[1]

    def _finish(self) -> tuple[Outputs, bool]:
        if self._slot is not None:
            slot, self._slot = self._slot, None
            try:
                self._ended.synchronize()
                slot.clock.count(self.began, self.computed)
                self._result = slot.read(self._count, self._size)
            except RuntimeError as error:
                self._result = error.with_traceback(None)
        if isinstance(self._result, RuntimeError):
            raise self._result
        return self._result


def _length(spec: NetSpec, size: int) -> int:
    """Float16 in a buffer for the outputs of a batch."""
    return APART + size * (spec.num_actions + spec.value_size)


def _views(buffer: torch.Tensor, size: int, spec: NetSpec) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where a batch's outputs lie: all, logits (B, A), values (B, V). One look finds what is not finite, one copy takes everything.

    At the very beginning is the largest magnitude of them all.
    """
    whole, end = buffer[: _length(spec, size)], APART + size * spec.num_actions
    return whole, whole[APART:end].view(size, -1), whole[end:].view(size, -1)


class Graphs:
    """The graphs of a shape of network, one a batch size, with own buffers and weights; recorded before a network serves."""

    def __init__(self, run: Pass, sizes: tuple[int, ...], streams: CudaStreams, *, compiled: bool = False) -> None:
        spec = run.network.spec
        self.spec, self.sizes, self.streams = spec, sizes, streams
        self.launching = threading.Lock()  # what one batch puts on the stream that computes stays together
        self._run, self._compiled = run, compiled
        self._weights = [*run.parameters(), *run.buffers()]
        self._version: object = None  # whose weights those are
        self._input = torch.zeros((sizes[-1], spec.packed_size), dtype=torch.uint8, device=streams.device)
        self._outputs = torch.zeros(_length(spec, sizes[-1]), dtype=torch.float16, device=streams.device)
        self._run.refresh()
        streams.synchronize()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    @property
    def recorded(self) -> list[int]:
        """The sizes that have a graph, ascending."""
        return sorted(self._graphs)

    def record(self, *, largest_only: bool = False) -> None:
        """Records what is missing. Raises CaptureRefused, or what the device raised."""
        sizes = self.sizes[-1:] if largest_only else self.sizes[::-1]  # the largest first: the others fit into its memory
        missing = [size for size in sizes if size not in self._graphs]
        try:
            for number, size in enumerate(missing):
                self.streams.report(number, len(missing))
                self._record(size)
        finally:
            self.streams.report(len(missing), len(missing))

    def _record(self, size: int) -> None:
        try:
            with _compiling() if self._compiled else nullcontext():
                self._graphs[size] = self.streams.record(lambda: self._body(size))
        except Exception as error:
            if classify(error) in (Failure.CAPTURE, Failure.BROKEN):
                raise CaptureRefused(reason_of(error)) from error
            raise

    def _body(self, size: int) -> None:
        # To call the module is to call what was compiled of it, where it was; its method never is.
        run = self._run if size >= COMPILED_FROM * self.sizes[-1] else self._run.forward
        whole, *outputs = _views(self._outputs, size, self.spec)
        for place, output in zip(outputs, run(self._input[:size]), strict=True):
            place.copy_(output)
        torch.linalg.vector_norm(whole[APART:], inf, out=whole[0])

    def replay(
        self, size: int, version: object, weights: list[torch.Tensor], rows: torch.Tensor, into: torch.Tensor, *, poison: bool
    ) -> None:
        """Puts a batch on the stream in use: weights, where they are of another version than those before, rows, graph, outputs.

        `poison`: what the graph does not write is NaN then.
        """
        with torch.no_grad():
            if self._version is not version:
                torch._foreach_copy_(self._weights, weights)
                self._version = version
            if poison:
                self._outputs.fill_(nan)
            self._input[: len(rows)].copy_(rows)
            self._graphs[size].replay()
            into.copy_(self._outputs[: len(into)])


class Slot:
    """Buffers of one batch in flight, pinned and on the device.

    Copies are launched beside the graph: torch notes each stream on which pinned memory was used, and asks it when the memory is freed,
    which a stream that captures at that moment must not be asked.
    """

    def __init__(self, graphs: Graphs) -> None:
        spec, largest, device = graphs.spec, graphs.sizes[-1], graphs.streams.device
        self._graphs, self.clock = graphs, graphs.streams.clock
        with torch.cuda.device(device):  # else pages are locked by a context on the first GPU, which costs memory there
            self._input = torch.zeros((largest, spec.packed_size), dtype=torch.uint8, pin_memory=True)
            self._outputs = torch.zeros(_length(spec, largest), dtype=torch.float16, pin_memory=True)
        self._input_there = torch.zeros_like(self._input, device=device)
        self._outputs_there = torch.zeros_like(self._outputs, device=device)
        self._batch: GraphBatch | None = None

    def launch(
        self, parts: tuple[NDArray[np.uint8], ...], size: int, version: object, weights: list[torch.Tensor], *, poison: bool
    ) -> GraphBatch:
        """Copies in, replays the graph of a size and copies out, each on its own stream."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.wait()  # it may still read the input, and its outputs would be overwritten
        count = gather(parts, self._input.numpy())
        if poison:
            self._outputs.fill_(nan)
        streams = self._graphs.streams
        here, there = (_views(buffer, size, self._graphs.spec)[0] for buffer in (self._outputs, self._outputs_there))
        with torch.cuda.device(streams.device):
            with torch.cuda.stream(streams.copy_in):
                self._input_there[:count].copy_(self._input[:count], non_blocking=True)
            with self._graphs.launching, torch.cuda.stream(streams.compute):
                streams.compute.wait_stream(streams.copy_in)
                began = self.clock.mark()
                self._graphs.replay(size, version, weights, self._input_there[:count], there, poison=poison)
                computed = self.clock.mark()
            with torch.cuda.stream(streams.copy_out):
                streams.copy_out.wait_stream(streams.compute)
                here.copy_(there, non_blocking=True)
                ended = self.clock.mark()
        self._batch = GraphBatch(self, count, size, began, computed, ended)
        return self._batch

    def read(self, count: int, size: int) -> tuple[Outputs, bool]:
        """Copies the outputs out of pinned memory; whether all are finite."""
        whole, logits, values = _views(self._outputs, size, self._graphs.spec)
        return (logits[:count].numpy().copy(), values[:count].numpy().copy()), isfinite(whole[0])


class GraphForward:
    """One version's weights on the device, evaluated by the graphs of its shape of network; `launch` records none."""

    def __init__(self, run: Pass, graphs: Graphs) -> None:
        self._run = run
        self._weights = [*run.parameters(), *run.buffers()]
        self._version = object()
        self._graphs = graphs
        self._slots = [Slot(graphs) for _ in range(SLOTS)]
        graphs.streams.synchronize()  # other streams than that of the zeros are to write there
        self._turn = 0

    @property
    def sizes(self) -> list[int]:
        """Of batches, ascending, as far as they were recorded."""
        return self._graphs.recorded

    def launch(self, *parts: NDArray[np.uint8], poison: bool = False) -> GraphBatch:
        """Replays the smallest graph that holds these leaves; raises CaptureRefused where there is none."""
        count, sizes = sum(map(len, parts)), self.sizes
        if not sizes or count > sizes[-1]:
            raise CaptureRefused(f"no graph of {count} leaves was recorded")
        self._turn = (self._turn + 1) % SLOTS
        return self._slots[self._turn].launch(parts, bucket_of(count, sizes), self._version, self._weights, poison=poison)

    def refresh(self, *, largest_only: bool = False) -> None:
        """Waits until the copy into the parameters is done, and records what is missing; never called for weights in service.

        `largest_only`: to see how fast the largest batch is.
        """
        self._run.refresh()
        self._version = object()
        self._graphs.streams.synchronize()
        self._graphs.record(largest_only=largest_only)

    def device_s(self, packed: NDArray[np.uint8]) -> float:
        """Seconds that the device takes for a batch, copies from and to the host aside."""
        batch = self.launch(packed)
        batch.wait()
        return batch.began.elapsed_time(batch.computed) / 1e3


@contextmanager
def _searching(search: bool) -> Iterator[None]:
    """Has cuDNN try kernels for the shapes that it meets first, with `search`. What it finds it keeps, for this thread."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _compiling() -> AbstractContextManager[object]:
    """Settings of torch.compile for the thread in use, whose they are alone: as many shapes as a process meets, and beyond them an error,
    where torch would go on op by op."""
    settings: Any = torch._dynamo.config
    return cast(AbstractContextManager[object], settings.patch(recompile_limit=MOST_COMPILED, fail_on_recompile_limit_hit=True))
