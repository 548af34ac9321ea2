"""Which samples a step trains on: a pure function of the run's seed, the rank, the step and the window. Nothing else is random.

So a batch does not depend on when it is gathered, or by which thread, and a resumed learner needs no state of a generator. What
`Prefetcher` gathers ahead of time equals what `Feed` hands out, bit for bit and in the same order. An order names the window as it was
when it was drawn up, so that batches stay what they are while games come in; those gathered for another order are gathered again.
Letters: B samples of a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from azq.replay.samples import Samples
from azq.replay.window import Window

PREFETCHED = 2  # batches ready ahead of the step that trains on them


@dataclass(frozen=True, slots=True)
class Order:
    """One batch that is wanted."""

    step: int  # that trains on it
    rows: int  # B
    size: int  # newest samples of the window that it is drawn from
    total: int  # samples ever added to the window when it was drawn up

    @property
    def following(self) -> Order:
        """The batch after it, while nothing changes."""
        return replace(self, step=self.step + 1)


def cut(rows: int, most: int) -> list[tuple[int, int]]:
    """Where as few parts as have at most `most` rows each, alike in size to a row, begin and end; 0: one."""
    count = -(-rows // most) if most else 1
    return list(pairwise(rows * place // count for place in range(count + 1)))


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples, each with its symmetry."""

    samples: Samples
    chosen: NDArray[np.uint8] | None = None  # (B,); None: they stay as they are

    def __len__(self) -> int:
        return len(self.samples)

    def parts(self, most: int) -> list[Batch]:
        """Itself in as few parts as have at most `most` samples each, alike in size to a sample; 0: in one."""
        cuts = cut(len(self), most)
        return [self._part(begin, end) for begin, end in cuts] if len(cuts) > 1 else [self]

    def _part(self, begin: int, end: int) -> Batch:
        return Batch(self.samples.part(begin, end), None if self.chosen is None else self.chosen[begin:end])


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers of one rank: counter-based, so that those of a step do not depend on the steps before."""

    seed: int
    symmetries: int = 1  # to choose from
    rank: int = 0

    def of(self, order: Order) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
        """Ages (B,) of an order's samples, 0 the newest, drawn uniformly with replacement; and their symmetries (B,), if there are any."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, self.rank], counter=[0, 0, 0, order.step]))
        ages = rng.integers(0, order.size, order.rows)
        return ages, rng.integers(0, self.symmetries, order.rows, dtype=np.uint8) if self.symmetries > 1 else None


class Feed:
    """Hands out batches; each is gathered when it is asked for."""

    def __init__(self, window: Window, draws: Draws) -> None:
        self._window = window
        self._draws = draws

    def order(self, step: int, rows: int, size: int) -> Order:
        """An order of the window as it is now."""
        return Order(step, rows, size, self._window.total)

    @contextmanager
    def take(self, order: Order) -> Iterator[Batch]:
        """The batch of an order, valid within the context; raises errors of its gathering."""
        ages, chosen = self._draws.of(order)
        yield Batch(self._window.newest(ages, order.total), chosen)

    def close(self) -> None:
        """Ends its threads."""


Fence = Callable[[], None]  # returns when the device has read a buffer


def no_fence() -> None:
    """For devices that read a buffer before the call that sends it returns."""


def fence_of(device: torch.device) -> Callable[[], Fence]:
    """Makes fences behind all that was queued on the device up to now."""
    if device.type != "cuda":
        return lambda: no_fence

    def make() -> Fence:
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        return event.synchronize

    return make


@dataclass(slots=True)
class _Slot:
    """Buffers of one batch, page-locked where the device is CUDA."""

    pinned: bool
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    fence: Fence = no_fence

    def rows(self, window: Window, count: int) -> dict[str, NDArray[Any]]:
        """Arrays of `count` rows in the window's shapes; new memory is taken only where there is too little."""
        shapes = window.shapes
        if any(name not in self.arrays or len(self.arrays[name]) < count for name in shapes):
            self.arrays = {name: self._buffer((count, *shape), kind) for name, (kind, shape) in shapes.items()}
        return {name: array[:count] for name, array in self.arrays.items()}

    def _buffer(self, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        empty: NDArray[Any] = np.empty(shape, kind)
        if not self.pinned:
            return empty
        flat = torch.empty(max(1, empty.nbytes), dtype=torch.uint8, pin_memory=True)
        return flat.numpy()[: empty.nbytes].view(kind).reshape(shape)


class Prefetcher(Feed):
    """Keeps `batches` batches ready. Taken from by one thread, while that thread or another adds to the window.

    Its own thread gathers one batch after the other, so a slot whose batch was dropped may be ordered again at once.
    """

    def __init__(
        self,
        window: Window,
        draws: Draws,
        device: torch.device,
        batches: int = PREFETCHED,
        make_fence: Callable[[], Fence] | None = None,
    ) -> None:
        super().__init__(window, draws)
        self._make_fence = make_fence or fence_of(device)
        self._free = deque(_Slot(device.type == "cuda") for _ in range(batches + 1))  # one is in use
        self._pending: deque[tuple[Order, _Slot, Future[Batch]]] = deque()
        self._thread = ThreadPoolExecutor(1, "prefetch")

    @contextmanager
    def take(self, order: Order) -> Iterator[Batch]:
        while self._pending and self._pending[0][0] != order:
            _, slot, batch = self._pending.popleft()
            batch.cancel()
            self._free.append(slot)
        following = self._pending[-1][0].following if self._pending else order
        while self._free:
            slot = self._free.popleft()
            self._pending.append((following, slot, self._thread.submit(self._gather, following, slot)))
            following = following.following
        _, slot, batch = self._pending.popleft()
        try:
            yield batch.result()
        finally:
            slot.fence = self._make_fence()
            self._free.append(slot)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _gather(self, order: Order, slot: _Slot) -> Batch:
        slot.fence()
        ages, chosen = self._draws.of(order)
        arrays = slot.rows(self._window, order.rows)
        self._window.gather(ages, arrays, total=order.total)
        return Batch(Samples(**arrays), chosen)
