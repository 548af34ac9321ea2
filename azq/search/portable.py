"""Search in Python, for games that are not in the core: the same face as `azq._core.Search`, many slots stepped together.

One leaf per slot and step, or those of `batch_root`; no proofs, no kept subtree, no threads. What one game does is in `portable_game.py`,
what one ply in `portable_ply.py` and, where nothing is hidden and nothing left to chance, in `portable_tree.py`.
Letters: A actions, P bytes of a packed observation, L leaves, V values per leaf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import GameContractError
from azq.search.portable_game import PortableGame, PortableRecord, PortableResult, SlotStatus


class PortableSearch:
    """See `azq._core.Search`. A game that raises ends in `broken_slots`, with the reason, and harms no other."""

    def __init__(self, game: Game, config: SearchConfig, *, num_slots: int, seed: int, autoplay: bool = True) -> None:
        self._game = game
        self._slots = [PortableGame(game, config, seed, autoplay) for _ in range(num_slots)]
        self._waiting: list[PortableGame] = []
        self.num_slots = num_slots
        self.evaluations = self.memory_bytes = 0
        self.exact_simulations = self.cache_lookups = self.cache_hits = self.merged_leaves = 0  # it proves and remembers nothing

    def start(self, slot: int, uid: int, actions: NDArray[np.uint16], **targets: NDArray[Any] | None) -> None:
        """Puts a game into a slot after replaying its actions, with the targets recorded so far, by their names in `PortableRecord`.

        Raises `IllegalActionError`, or `GameContractError` where the game's own rules fail; both leave the slot empty.
        """
        self._at_rest(slot).start(uid, actions, targets)

    def start_at(self, slot: int, uid: int, state: State) -> None:
        """Puts a position into a slot; its record begins there. Raises as `start`."""
        self._at_rest(slot).start_at(uid, state)

    def clear(self, slot: int) -> None:
        self._at_rest(slot).clear()

    def _at_rest(self, number: int) -> PortableGame:
        slot = self._slots[number]
        if any(waiting is slot for waiting in self._waiting):
            raise RuntimeError(f"slot {number} has a leaf out for evaluation; call apply first")
        return slot

    def collect(self, packed: NDArray[np.uint8], slots: NDArray[np.int32]) -> int:
        """Advances every busy slot to its next leaf; returns L and writes packed[:L] and slots[:L]."""
        if self._waiting:
            raise RuntimeError(f"{len(self._waiting)} leaves wait for their evaluations; call apply first")
        for number, slot in enumerate(self._slots):
            for row in slot.advance():
                packed[len(self._waiting)] = row
                slots[len(self._waiting)] = number
                self._waiting.append(slot)
        self.evaluations += len(self._waiting)
        return len(self._waiting)

    def apply(self, logits: NDArray[np.float16], values: NDArray[np.float16], weight_version: int = 0) -> None:
        """Gives the evaluations of the last collect: logits (L, A), values (L, V)."""
        count, actions, seats = len(self._waiting), self._game.num_distinct_actions(), self._game.value_size()
        if np.shape(logits) != (count, actions) or np.shape(values) != (count, seats):
            raise ValueError(
                f"apply needs logits {(count, actions)} and values {(count, seats)}, not {np.shape(logits)} and {np.shape(values)}"
            )
        rows = np.ascontiguousarray(logits, np.float16)
        if ((rows.view(np.uint16) & 0x7FFF) > 0x7C00).any() or np.isnan(values).any():  # numpy's isnan of float16 takes six times as long
            raise ValueError("evaluations hold NaN: the evaluator is broken; nothing was applied")
        waiting, self._waiting = self._waiting, []
        for slot, row, value in zip(waiting, rows, np.asarray(values, np.float32).tolist(), strict=True):
            slot.apply(row, value, weight_version)

    def _with(self, status: SlotStatus) -> list[int]:
        return [number for number, slot in enumerate(self._slots) if slot.status == status and not slot.broken]

    def finished_slots(self) -> list[int]:
        return self._with(SlotStatus.FINISHED)

    def idle_slots(self) -> list[int]:
        return self._with(SlotStatus.IDLE)

    def empty_slots(self) -> list[int]:
        return self._with(SlotStatus.EMPTY)

    def broken_slots(self) -> dict[int, tuple[int, str]]:
        """Slots whose game raised: uid and reason; `clear` frees them."""
        return {n: (slot.uid, slot.broken) for n, slot in enumerate(self._slots) if slot.broken}

    def changed_slots(self) -> list[int]:
        changed = [number for number, slot in enumerate(self._slots) if slot.changed and slot.open]
        for number in changed:
            self._slots[number].changed = False
        return changed

    def record(self, slot: int) -> PortableRecord:
        return self._slots[slot].record()

    def result(self, slot: int) -> PortableResult:
        if self._slots[slot].broken:
            raise GameContractError(self._slots[slot].broken)
        if self._slots[slot].status != SlotStatus.IDLE:
            raise RuntimeError(f"slot {slot} has no spent search; see idle_slots()")
        return self._slots[slot].result()

    def play(self, slot: int, action: int) -> None:
        self._at_rest(slot).play(action)

    def state(self, slot: int) -> State:
        return self._slots[slot].state.clone()

    @property
    def simulations(self) -> int:
        return sum(slot.simulations for slot in self._slots)

    @property
    def plies(self) -> int:
        return sum(slot.total_plies for slot in self._slots)
