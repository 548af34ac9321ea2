"""Drives azq._core.Search with an evaluator, as an actor does."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from azq._core import Search
from azq.search.portable import PortableSearch
from azq.search.search import Record
from reference.search import Evaluate

NO_ACTIONS = np.zeros(0, np.uint16)


class Driver:
    """A search with its buffers."""

    def __init__(self, search: Search | PortableSearch, *, packed_size: int, leaves_per_step: int, evaluate: Evaluate) -> None:
        capacity = search.num_slots * leaves_per_step
        self.search = search
        self._packed = np.zeros((capacity, packed_size), np.uint8)
        self._slots = np.zeros(capacity, np.int32)
        self._evaluate = evaluate

    def step(self) -> int:
        """One collect and apply; returns the leaves."""
        leaves = self.search.collect(self._packed, self._slots)
        if leaves:
            self.search.apply(*self._evaluate(self._packed[:leaves]), weight_version=7)
        return leaves

    def run(self) -> None:
        """Steps until no slot asks for an evaluation."""
        while self.step():
            pass

    def play(self, uids: Iterable[int]) -> list[Record]:
        """Plays one game per slot by itself; returns the records in the order of the slots."""
        for slot, uid in enumerate(uids):
            self.search.start(slot, uid, NO_ACTIONS)
        self.run()
        return [self.search.record(slot) for slot in self.search.finished_slots()]
