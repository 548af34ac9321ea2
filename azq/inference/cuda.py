"""CUDA graphs: one per batch size and slot, so that a batch costs one launch and its copies overlap the other slot's compute."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from azq import logs
from azq.inference.batching import bucket_of
from azq.inference.device_clock import DeviceClock
from azq.inference.forward import EagerForward, Flight, Outputs, as_float16
from azq.nets import Network, unpack
from azq.phases import Event

SLOTS = 2  # batches in flight, each on its own stream


class GraphFlight:
    """A replayed graph; its outputs lie in pinned memory until the slot is used again, so `wait` copies them out once."""

    def __init__(self, slot: Slot, count: int, begun: Event) -> None:
        self._slot = slot
        self._count = count
        self._begun = begun
        self.device_s = 0.0
        self._outputs: Outputs | None = None

    def wait(self) -> Outputs:
        """Blocks until the device is done."""
        if self._outputs is None:
            self._outputs, self.device_s = self._slot.read(self._count, self._begun)
        return self._outputs


class Slot:
    """Pinned buffers and the graph between them: copy in, unpack, forward, copy out, for one batch size."""

    def __init__(self, module: Network, device: torch.device, size: int, stream: torch.cuda.Stream, clock: DeviceClock) -> None:
        spec = module.spec
        self._stream = stream
        self._clock = clock
        self._input = torch.zeros((size, spec.packed_size), dtype=torch.uint8, pin_memory=True)
        self._logits = torch.zeros((size, spec.num_actions), dtype=torch.float16, pin_memory=True)
        self._values = torch.zeros((size, spec.value_size), dtype=torch.float16, pin_memory=True)
        self._on_device = torch.zeros((size, spec.packed_size), dtype=torch.uint8, device=device)
        self._done: Event | None = None
        self._flight: GraphFlight | None = None
        self._graph = self._capture(module)

    def launch(self, packed: NDArray[np.uint8]) -> GraphFlight:
        """Replays the graph on the slot's stream."""
        if self._flight is not None:
            self._flight.wait()  # its outputs would be overwritten
        count = len(packed)
        self._input.numpy()[:count] = packed
        with torch.cuda.stream(self._stream):
            begun = self._clock.mark()
            self._graph.replay()
            self._done = self._clock.mark()
        self._flight = GraphFlight(self, count, begun)
        return self._flight

    def read(self, count: int, begun: Event) -> tuple[Outputs, float]:
        """Waits for the stream and copies the outputs out of pinned memory; also the device seconds that the batch took."""
        assert self._done is not None
        self._done.synchronize()
        outputs = self._logits[:count].numpy().copy(), self._values[:count].numpy().copy()
        return outputs, self._clock.landed(begun, self._done)

    def _capture(self, module: Network) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            for _ in range(3):  # cuDNN chooses its kernels before capture, where it may not
                self._body(module)
            self._stream.synchronize()
            with torch.cuda.graph(graph, stream=self._stream):
                self._body(module)
        self._stream.synchronize()
        return graph

    def _body(self, module: Network) -> None:
        self._on_device.copy_(self._input, non_blocking=True)
        planes, scalars = unpack(self._on_device, module.spec)
        logits, values = as_float16(*module(planes, scalars))
        self._logits.copy_(logits, non_blocking=True)
        self._values.copy_(values, non_blocking=True)


class GraphForward:
    """Replays one graph per bucket and slot; a bucket whose capture fails is run op by op from then on.

    Weights change in place: graphs read the parameters where they lie, so a swap costs a copy and no new capture.
    """

    def __init__(self, module: Network, device: torch.device, sizes: tuple[int, ...]) -> None:
        self._module = module
        self._device = device
        self._sizes = sizes
        self._streams = [torch.cuda.Stream(device) for _ in range(SLOTS)]  # type: ignore[no-untyped-call]
        self._slots: dict[tuple[int, int], Slot] = {}
        self._eager = EagerForward(module, device, sizes)
        self._refused: set[int] = set()
        self._turn = 0
        self._clock = DeviceClock(_timing_event)

    def launch(self, packed: NDArray[np.uint8]) -> Flight:
        """Starts on the stream whose turn it is."""
        size = bucket_of(len(packed), self._sizes)
        self._turn = (self._turn + 1) % SLOTS
        slot = self._slot(size, self._turn)
        return self._eager.launch(packed) if slot is None else slot.launch(packed)

    def refresh(self) -> None:
        """Waits until the copy into the parameters is done: the slots' streams do not order themselves after it."""
        torch.cuda.synchronize(self._device)

    def _slot(self, size: int, turn: int) -> Slot | None:
        if size in self._refused:
            return None
        if (size, turn) not in self._slots:
            try:
                self._slots[size, turn] = Slot(self._module, self._device, size, self._streams[turn], self._clock)
            except RuntimeError as error:
                self._refused.add(size)
                logs.get(__name__).warning("cuda_graph_refused", batch=size, error=str(error).splitlines()[0])
                return None
        return self._slots[size, turn]


def _timing_event() -> Event:
    return cast(Event, torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
