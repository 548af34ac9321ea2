"""CUDA graphs: one per batch size and slot, so that a batch costs one launch and its copies overlap the other slot's compute.

They are recorded by the thread that loads weights, all of them before a version serves: to record takes long, and cuDNN searches for
kernels on each thread anew. The thread that serves only replays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf, isfinite
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray

from azq import logs
from azq.inference.device.forward import CaptureRefused, Failure, Outputs, bucket_of, classify, gather
from azq.inference.device.ways import Pass
from azq.nets import NetSpec
from azq.nets.device import device_mark
from azq.phases import DeviceEvent

SLOTS = 2  # batches in flight, each on its own stream
WARM_UPS = 3  # runs before capture, in which cuDNN chooses its kernels and torch.compile compiles
COMPILED_FROM = 0.25  # of the largest batch: each size is compiled by itself, which takes its time, and small ones gain little
APART = 64  # float16 in a buffer before the logits, which are to begin where the device reads and writes best
TOLD_S = 5.0  # between lines of the log about a recording that lasts


class DeviceClock:
    """Adds up the time in which at least one batch ran; `make_event` makes a timing mark, recorded on the stream in use.

    Batches land in the order in which they ended; one landed by another thread at the same moment may be counted twice or not at all.
    """

    def __init__(self, make_event: Callable[[], DeviceEvent]) -> None:
        self._make_event = make_event
        self._landed: DeviceEvent | None = None  # the end of the batch that landed last
        self.busy_s = 0.0

    def mark(self) -> DeviceEvent:
        """A mark at this point of the stream in use."""
        event = self._make_event()
        event.record()
        return event

    def landed(self, begin: DeviceEvent, end: DeviceEvent) -> None:
        """Counts a finished batch, as far as it did not run while the one before it did."""
        lengths = [begin.elapsed_time(end)]
        if self._landed is not None:
            lengths.append(self._landed.elapsed_time(end))
        self._landed = end
        self.busy_s += max(0.0, min(lengths)) / 1e3


class Lane:
    """What the graphs of one slot share, whatever network they run: a stream, a memory pool, a stream to capture on.

    They are replayed on the one stream, hence one after the other, so that they may share memory. Nothing ever runs on the stream that
    captures: cuBLAS has a workspace for each stream, and that of the captured stream goes into the graph. So it must come out of
    the lane's own pool, and no batch that runs beside this lane's may have it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._capture_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = None
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self._failed: list[torch.cuda.CUDAGraph] = []  # torch's allocator may go on asking them

    def record(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The graph of what `body` launches. One thread at a time."""
        others = list(self._graphs)  # torch refuses a pool whose last graph is gone, so they stay until this one is there
        if not others:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # thread_local: the other thread goes on launching batches meanwhile, which would end a capture in global mode.
        # The stream in use is put back by us: torch leaves the one that captures in its place when a capture fails.
        try:
            with (
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, pool=self._pool, stream=self._capture_stream, capture_error_mode="thread_local"),
            ):
                body()
        except BaseException:
            self._failed.append(graph)
            raise
        self._graphs.add(graph)
        return graph


class Lanes:
    """What all graphs of a device share: a lane for each slot, a stream to warm up on; with `search` cuDNN tries kernels there."""

    def __init__(self, device: torch.device, *, search: bool = False) -> None:
        self.device = device
        self.capturing = threading.Lock()  # a process may capture one graph at a time
        self._search = search
        self.clock = DeviceClock(partial(device_mark, blocking=True))
        self.doing = ""  # for whoever waits
        self._told_s = float("-inf")
        self._lanes = [Lane(device) for _ in range(SLOTS)]
        self._warm_up_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def slot(self, run: Pass, turn: int, largest: int) -> GraphSlot:
        return GraphSlot(run, self, self._lanes[turn], largest)

    def settle(self) -> None:
        """Waits for what this thread put on its own stream, as copies into parameters; slots' streams do not order themselves after it."""
        torch.cuda.current_stream(self.device).synchronize()

    def tell(self, recorded: int, graphs: int) -> None:
        """How far the recording of a network's graphs is."""
        self.doing = f"recording graphs: {recorded} of {graphs}" if recorded < graphs else ""
        if self.doing and time.monotonic() - self._told_s > TOLD_S:
            self._told_s = time.monotonic()
            logs.get(__name__).info("recording_graphs", recorded=recorded, graphs=graphs, device=str(self.device))

    def record(self, lane: Lane, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The graph of what `body` launches on a lane, after it ran some times."""
        with torch.cuda.device(self.device), torch.inference_mode(), _searching(self._search):
            self._warm_up_stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self._warm_up_stream):
                for _ in range(WARM_UPS):
                    body()
            self._warm_up_stream.synchronize()
            with self.capturing:  # and no longer: kernels may be searched and compiled above, while a thread that serves waits for this
                return lane.record(body)


class GraphFlight:
    """A replayed graph; its outputs lie in pinned memory until the slot is used again, so `wait` copies them out once.

    Lets go of the slot once it is over, however it ended: a smaller batch may need the memory.
    """

    def __init__(self, slot: GraphSlot, count: int, size: int, begun: DeviceEvent, ended: DeviceEvent) -> None:
        self._slot: GraphSlot | None = slot
        self._count, self._size = count, size
        self.begun, self.ended = begun, ended
        self._landed: tuple[Outputs, bool] | RuntimeError = RuntimeError("not waited for")

    def done(self) -> bool:
        try:
            return self._slot is None or self.ended.query()
        except RuntimeError:
            return True

    def wait(self) -> Outputs:
        return self._land()[0]

    def finite(self) -> bool:
        """What the device found of its outputs, rows of padding included."""
        return self._land()[1]

    def _land(self) -> tuple[Outputs, bool]:
        if self._slot is not None:
            slot, self._slot = self._slot, None
            try:
                self._landed = slot.read(self._count, self._size, self.begun, self.ended)
            except RuntimeError as error:
                self._landed = error.with_traceback(None)
        if isinstance(self._landed, RuntimeError):
            raise self._landed
        return self._landed


def _answers(buffer: torch.Tensor, size: int, spec: NetSpec) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where a batch's outputs lie: all, logits (B, A), values (B, V). One look finds what is not finite, one copy takes everything.

    At the very beginning is the largest magnitude of them all.
    """
    whole, end = buffer[: APART + size * (spec.num_actions + spec.value_size)], APART + size * spec.num_actions
    return whole, whole[APART:end].view(size, -1), whole[end:].view(size, -1)


class GraphSlot:
    """Buffers for the largest batch, pinned and on the device, and for each size a graph between those on the device.

    Copies are launched beside the graph: torch notes each stream on which pinned memory was used, and asks it when the memory is freed,
    which a stream that captures at that moment must not be asked.
    """

    def __init__(self, run: Pass, lanes: Lanes, lane: Lane, largest: int) -> None:
        spec = run.network.spec
        self._run, self._largest = run, largest
        self._lanes = lanes
        self._lane = lane
        width = spec.num_actions + spec.value_size
        with torch.cuda.device(lanes.device):  # else pages are locked by a context on the first GPU, which costs memory there
            self._input = torch.zeros((largest, spec.packed_size), dtype=torch.uint8, pin_memory=True)
            self._outputs = torch.zeros(APART + largest * width, dtype=torch.float16, pin_memory=True)
        self._input_there = torch.zeros_like(self._input, device=lanes.device)
        self._outputs_there = torch.zeros_like(self._outputs, device=lanes.device)
        lanes.settle()  # other streams than that of the zeros are to write there
        self._flight: GraphFlight | None = None
        self._places: dict[int, tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}  # by size: here, and on the device
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    @property
    def recorded(self) -> list[int]:
        """The sizes that have a graph, ascending."""
        return sorted(self._graphs)

    def launch(self, parts: tuple[NDArray[np.uint8], ...], size: int) -> GraphFlight:
        """Copies in, replays the graph of a size and copies out, all on the slot's stream."""
        self._free()  # the flight before may still read the input, and its outputs would be overwritten
        count = gather(parts, self._input.numpy())
        with torch.cuda.device(self._lanes.device), torch.cuda.stream(self._lane.stream):
            begun = self._lanes.clock.mark()
            self._input_there[:count].copy_(self._input[:count], non_blocking=True)
            self._graphs[size].replay()
            here, there = self._places[size]
            here[0].copy_(there[0], non_blocking=True)
            ended = self._lanes.clock.mark()
        self._flight = GraphFlight(self, count, size, begun, ended)
        return self._flight

    def read(self, count: int, size: int, begun: DeviceEvent, ended: DeviceEvent) -> tuple[Outputs, bool]:
        """Waits for the stream, counts the device's time and copies the outputs out of pinned memory."""
        ended.synchronize()
        self._lanes.clock.landed(begun, ended)
        whole, logits, values = self._places[size][0]
        return (logits[:count].numpy().copy(), values[:count].numpy().copy()), isfinite(whole[0])

    def capture(self, size: int) -> None:
        """Records the graph of a size. Raises CaptureRefused, or what the device raised."""
        self._free()  # warm-ups write into the slot's buffers
        spec = self._run.network.spec
        self._places[size] = _answers(self._outputs, size, spec), _answers(self._outputs_there, size, spec)
        try:
            self._graphs[size] = self._lanes.record(self._lane, lambda: self._body(size))
        except RuntimeError as error:
            if classify(error) in (Failure.CAPTURE, Failure.BROKEN):
                raise CaptureRefused(str(error).splitlines()[0]) from error
            raise

    def _free(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.wait()

    def _body(self, size: int) -> None:
        # To call the module is to call what was compiled of it, where it was; its method never is.
        run = self._run if size >= COMPILED_FROM * self._largest else self._run.forward
        whole, *outputs = self._places[size][1]
        for place, output in zip(outputs, run(self._input_there[:size]), strict=True):
            place.copy_(output)
        torch.linalg.vector_norm(whole[APART:], inf, out=whole[0])


class GraphForward:
    """Replays one graph per bucket and slot; `refresh` records them all, and `launch` none.

    Weights change in place: graphs read the parameters where they lie, so a swap costs a copy and no new capture.
    """

    def __init__(self, run: Pass, sizes: tuple[int, ...], lanes: Lanes) -> None:
        self._run = run
        self._sizes = sizes
        self._lanes = lanes
        self._slots = [lanes.slot(run, turn, sizes[-1]) for turn in range(SLOTS)]
        self._turn = 0

    def launch(self, *parts: NDArray[np.uint8]) -> GraphFlight:
        """Replays the smallest graph that holds these leaves; raises CaptureRefused where there is none."""
        self._turn = (self._turn + 1) % SLOTS
        slot = self._slots[self._turn]
        count, recorded = sum(map(len, parts)), slot.recorded
        if not recorded or count > recorded[-1]:
            raise CaptureRefused(f"no graph of {count} leaves was recorded")
        return slot.launch(parts, bucket_of(count, recorded))

    def refresh(self, *, largest_only: bool = False) -> None:
        """Waits until the copy into the parameters is done, and captures what is missing; never called for a network in service.

        `largest_only`: to see how fast the largest batch is.
        """
        self._run.refresh()
        self._lanes.settle()
        sizes = self._sizes[-1:] if largest_only else self._sizes[::-1]
        missing = [(size, slot) for size in sizes for slot in self._slots if size not in slot.recorded]
        try:
            for number, (size, slot) in enumerate(missing):  # the largest first: the others fit into its memory
                self._lanes.tell(number, len(missing))
                slot.capture(size)
        finally:
            self._lanes.tell(len(missing), len(missing))

    def device_s(self, packed: NDArray[np.uint8]) -> float:
        """Seconds that the device takes for a batch, from its first copy to its last."""
        flight = self.launch(packed)
        flight.wait()
        return flight.begun.elapsed_time(flight.ended) / 1e3


@contextmanager
def _searching(search: bool) -> Iterator[None]:
    """Has cuDNN try kernels for the shapes that it meets first, with `search`. What it finds it keeps, for this thread."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
