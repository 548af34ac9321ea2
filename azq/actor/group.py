"""One group of games that is searched while the other groups' leaves are evaluated.

Letters: L leaves, S slots, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from azq import _core
from azq.errors import WireError
from azq.search.evaluator import Evaluation, Evaluator
from azq.search.search import Record, Search
from azq.wire.arrays import outgrown, pack_record, unpack_record
from azq.wire.messages import GameRecord


class Group:
    """A search with its buffers and the one request that it has in flight."""

    def __init__(self, search: Search, game: _core.Game, leaves_per_step: int) -> None:
        capacity = search.num_slots * leaves_per_step
        self._search = search
        self._num_actions = game.num_distinct_actions()
        self._value_size = game.value_size()
        self._packed = np.zeros((capacity, game.packed_size()), np.uint8)
        self._slots = np.zeros(capacity, np.int32)
        self._leaves = 0  # of the last collect, not yet applied
        self._outgrown: dict[int, tuple[int, str]] = {}  # slots whose game became too long to be sent: number and reason
        self._untold: list[tuple[int, str]] = []  # of them
        self.handle: int | None = None
        self.submitted_s = 0.0
        self.search_s = 0.0  # CPU of this thread in the core so far

    @property
    def search(self) -> Search:
        """The search, for its counters."""
        return self._search

    @property
    def leaves(self) -> int:
        """Leaves that wait for their evaluations."""
        return self._leaves

    def room(self) -> int:
        """Slots without a game."""
        return len(self._search.empty_slots())

    def start(self, record: GameRecord) -> None:
        """Puts a game into a free slot after replaying it; raises `WireError` or `IllegalActionError` where that fails."""
        arrays = unpack_record(record, self._num_actions, self._value_size)
        slot = self._search.empty_slots()[0]
        try:
            self._search.start(slot, record.uid, **arrays)
        except (ValueError, TypeError, IndexError) as error:
            raise WireError(f"game {record.uid} does not replay: {error}") from None

    def advance(self) -> int:
        """Searches on to the next leaves and returns their number; 0 where nothing can move."""
        began_s = time.thread_time()
        self._leaves = self._search.collect(self._packed, self._slots)
        self.search_s += time.thread_time() - began_s
        return self._leaves

    def submit(self, evaluator: Evaluator, now_s: float) -> None:
        """Asks for the evaluations of the last leaves (L, P); asking again for the same leaves is harmless."""
        self.handle = evaluator.submit(self._packed[: self._leaves])
        self.submitted_s = now_s

    def check(self, evaluation: Evaluation) -> None:
        """Raises `WireError` where the evaluations are not (L, A) and (L, V)."""
        wanted = (self._leaves, self._num_actions), (self._leaves, self._value_size)
        found = evaluation.logits.shape, evaluation.values.shape
        if found != wanted:
            raise WireError(f"evaluations have shapes {found}, the {self._leaves} leaves need {wanted}")

    def apply(self, evaluation: Evaluation) -> int:
        """Gives the trees their evaluations, whose shapes were checked, and returns how many."""
        count, began_s = self._leaves, time.thread_time()
        self._search.apply(evaluation.logits, evaluation.values, evaluation.weight_version)
        self.search_s += time.thread_time() - began_s
        self.handle, self._leaves = None, 0
        return count

    def finished(self) -> list[Record]:
        """Records of the games that ended."""
        return [self._search.record(slot) for slot in self._search.finished_slots() if slot not in self._outgrown]

    def finished_any(self) -> bool:
        """True where some game ended and was not cleared yet."""
        return bool(self._search.finished_slots())

    def clear_finished(self) -> None:
        """Frees the slots of the games that ended."""
        for slot in self._search.finished_slots():
            self._search.clear(slot)

    def take_broken(self) -> list[tuple[int, str]]:
        """Games that nobody can play on, number and reason: too long to be sent, or (Python games) their own rules raised."""
        untold, self._untold = self._untold, []
        broken = self._search.broken_slots()
        for slot in broken:
            self._search.clear(slot)
        return untold + [found for slot, found in broken.items() if slot not in self._outgrown]

    def changed(self) -> Iterator[GameRecord]:
        """Open games that grew since this was last asked; one that is too long to be sent is left out, and told by `take_broken`."""
        for slot in self._search.changed_slots():
            if slot in self._outgrown:
                continue
            record = pack_record(self._search.record(slot))
            if reason := outgrown(record):
                self._outgrown[slot] = record.uid, reason
                self._untold.append(self._outgrown[slot])
            else:
                yield record

    def clear_outgrown(self) -> None:
        """Frees the slots of games that are too long to be sent, once no leaf is out."""
        if not self._leaves:
            for slot in self._outgrown:
                self._search.clear(slot)
            self._outgrown.clear()

    def drop(self) -> None:
        """Empties all slots, whatever they hold, and leaves the search ready for other games."""
        if self._leaves:  # the core wants its answer before it forgets the question
            zeros = Evaluation(
                np.zeros((self._leaves, self._num_actions), np.float16), np.zeros((self._leaves, self._value_size), np.float16), 0
            )
            self.apply(zeros)
        self._outgrown, self._untold = {}, []
        empty = set(self._search.empty_slots())
        for slot in range(self._search.num_slots):
            if slot not in empty:
                self._search.clear(slot)
        self._search.changed_slots()
        self.handle = None
