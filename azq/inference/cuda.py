"""CUDA graphs: one per batch size and slot, so that a batch costs one launch and its copies overlap the other slot's compute."""

from __future__ import annotations

import threading
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from azq.inference.batching import bucket_of
from azq.inference.device_clock import DeviceClock
from azq.inference.fallback import CaptureRefused, Failure, classify
from azq.inference.forward import EagerForward, Flight, Outputs, as_float16, gather
from azq.nets import Network, unpack
from azq.phases import Event

SLOTS = 2  # batches in flight, each on its own stream
WARM_UPS = 3  # runs before capture, in which cuDNN chooses its kernels and torch.compile compiles


class Lanes:
    """What all graphs of a device share: a stream and a memory pool for each slot, a stream to capture on, the sizes in use.

    Graphs of one slot are replayed on its stream, hence one after the other, so that they may share one pool whatever network they run.
    Capture has a stream of its own: work put on a stream that captures would become part of the graph.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams = [torch.cuda.Stream(device) for _ in range(SLOTS)]  # type: ignore[no-untyped-call]
        self.capture_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pools: list[Any] = [torch.cuda.graph_pool_handle() for _ in range(SLOTS)]
        self.capturing = threading.Lock()  # a process may capture one graph at a time
        self.in_use: set[int] = set()
        self.clock = DeviceClock(_timing_event)

    def slot(self, module: Network, turn: int, largest: int) -> Slot:
        """Buffers of a network for a slot."""
        return Slot(module, self, turn, largest)

    def settle(self) -> None:
        """Waits for what this thread put on its own stream, as copies into parameters; slots' streams do not order themselves after it."""
        torch.cuda.current_stream(self.device).synchronize()


class GraphFlight:
    """A replayed graph; its outputs lie in pinned memory until the slot is used again, so `wait` copies them out once."""

    def __init__(self, slot: Slot, count: int, begun: Event, done: Event) -> None:
        self._slot = slot
        self._count = count
        self._begun, self._done = begun, done
        self._landed: tuple[Outputs, bool] | None = None

    def wait(self) -> Outputs:
        """Blocks until the device is done."""
        return self._land()[0]

    def finite(self) -> bool:
        """What the device found of its outputs, rows of padding included."""
        return self._land()[1]

    def _land(self) -> tuple[Outputs, bool]:
        if self._landed is None:
            self._landed = self._slot.read(self._count, self._begun, self._done)
        return self._landed


class Slot:
    """Pinned buffers for the largest batch, and a graph between them for each size: copy in, unpack, forward, copy out."""

    def __init__(self, module: Network, lanes: Lanes, turn: int, largest: int) -> None:
        spec = module.spec
        self._module = module
        self._lanes = lanes
        self._turn = turn
        self._input = torch.zeros((largest, spec.packed_size), dtype=torch.uint8, pin_memory=True)
        self._logits = torch.zeros((largest, spec.num_actions), dtype=torch.float16, pin_memory=True)
        self._values = torch.zeros((largest, spec.value_size), dtype=torch.float16, pin_memory=True)
        self._finite = torch.zeros((1,), dtype=torch.bool, pin_memory=True)
        self._on_device = torch.zeros((largest, spec.packed_size), dtype=torch.uint8, device=lanes.device)
        self._flight: GraphFlight | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def holds(self, size: int) -> bool:
        """Whether the graph of a size was captured."""
        return size in self._graphs

    def launch(self, parts: tuple[NDArray[np.uint8], ...], size: int) -> GraphFlight:
        """Replays the graph of a size on the slot's stream."""
        if self._flight is not None:
            self._flight.wait()  # it may still read the input, and its outputs would be overwritten
        count = gather(parts, self._input.numpy())
        with torch.cuda.device(self._lanes.device), torch.cuda.stream(self._lanes.streams[self._turn]):
            begun = self._lanes.clock.mark()
            self._graphs[size].replay()
            done = self._lanes.clock.mark()
        self._flight = GraphFlight(self, count, begun, done)
        return self._flight

    def read(self, count: int, begun: Event, done: Event) -> tuple[Outputs, bool]:
        """Waits for the stream, counts the device's time and copies the outputs out of pinned memory."""
        done.synchronize()
        self._lanes.clock.landed(begun, done)
        return (self._logits[:count].numpy().copy(), self._values[:count].numpy().copy()), bool(self._finite[0])

    def capture(self, size: int) -> None:
        """Records the graph of a size; the caller holds `Lanes.capturing`. Raises CaptureRefused, or what the device raised.

        Warm-ups write into the slot's buffers, so that a flight in them is brought home first.
        """
        if self._flight is not None:
            self._flight.wait()
        try:
            self._graphs[size] = self._captured(size)
        except RuntimeError as error:
            if classify(error) in (Failure.CAPTURE, Failure.BROKEN):
                raise CaptureRefused(str(error).splitlines()[0]) from error
            raise

    def _captured(self, size: int) -> torch.cuda.CUDAGraph:
        graph, stream, device = torch.cuda.CUDAGraph(), self._lanes.capture_stream, self._lanes.device
        with torch.cuda.device(device), torch.inference_mode():
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self._body(size)
            stream.synchronize()
            # thread_local: the other thread goes on launching batches meanwhile, which would end a capture in global mode.
            pool = self._lanes.pools[self._turn]
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._body(size)
        return graph

    def _body(self, size: int) -> None:
        observations = self._on_device[:size]
        observations.copy_(self._input[:size], non_blocking=True)
        logits, values = as_float16(*self._module(*unpack(observations, self._module.spec)))
        finite = torch.isfinite(logits).all() & torch.isfinite(values).all()
        self._logits[:size].copy_(logits, non_blocking=True)
        self._values[:size].copy_(values, non_blocking=True)
        self._finite.copy_(finite.view(1), non_blocking=True)


class Slots(Protocol):
    """What GraphForward asks of a device; `Lanes` is the real one."""

    capturing: threading.Lock
    in_use: set[int]

    def slot(self, module: Network, turn: int, largest: int) -> Any: ...
    def settle(self) -> None: ...


class GraphForward:
    """Replays one graph per bucket and slot.

    Weights change in place: graphs read the parameters where they lie, so a swap costs a copy and no new capture.
    A network that is not in service records graphs of all sizes in use in `refresh`; a size met first in service is recorded then,
    or, where another thread is recording, run op by op this once.
    """

    def __init__(self, module: Network, device: torch.device, sizes: tuple[int, ...], lanes: Slots) -> None:
        self._sizes = sizes
        self._lanes = lanes
        self._slots = [lanes.slot(module, turn, sizes[-1]) for turn in range(SLOTS)]
        self._eager = EagerForward(module, device, sizes)
        self._turn = 0

    def launch(self, *parts: NDArray[np.uint8]) -> Flight:
        """Starts on the stream whose turn it is."""
        size = bucket_of(sum(map(len, parts)), self._sizes)
        self._lanes.in_use.add(size)
        self._turn = (self._turn + 1) % SLOTS
        slot = self._slots[self._turn]
        if not slot.holds(size) and not self._capture(slot, size, wait=False):
            return self._eager.launch(*parts)
        flight: Flight = slot.launch(parts, size)
        return flight

    def refresh(self) -> None:
        """Waits until the copy into the parameters is done, and captures what is missing; never called for a network in service."""
        self._lanes.settle()
        for size in sorted(self._lanes.in_use & set(self._sizes), reverse=True):  # the largest first: the others fit into its memory
            for slot in self._slots:
                if not slot.holds(size):
                    self._capture(slot, size, wait=True)

    def _capture(self, slot: Any, size: int, *, wait: bool) -> bool:
        """Records a graph unless another thread is at it and this one may not wait."""
        if not self._lanes.capturing.acquire(blocking=wait):
            return False
        try:
            slot.capture(size)
        finally:
            self._lanes.capturing.release()
        return True


def _timing_event() -> Event:
    """Blocking: a host thread that waits for the device leaves its core to the others."""
    return cast(Event, torch.cuda.Event(enable_timing=True, blocking=True))  # type: ignore[no-untyped-call]
