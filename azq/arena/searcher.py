"""Searches many positions at once to a fixed budget: what players, grading and analysis share.

Letters: L leaves, P bytes of a packed observation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from azq import _core
from azq.arena.evaluate import evaluate
from azq.arena.position import Line, position
from azq.arena.tick import Tick, no_tick
from azq.config import SearchConfig
from azq.search.evaluator import Evaluator
from azq.search.make import make_search
from azq.search.settings import strongest
from azq.wire.codec import most_leaves
from azq.wire.messages import LATEST

MAX_SLOTS = 256


class Searcher:
    """A player's search over lists of positions, without exploration, by one pinned weight version.

    `tick` is called between steps, at least ten times a second; what it raises ends the search.
    """

    def __init__(
        self,
        game: _core.Game,
        evaluator: Evaluator,
        config: SearchConfig,
        num_simulations: int,
        *,
        slots: int = MAX_SLOTS,
        weight_version: int = LATEST,
        seed: int = 0,
        tick: Tick = no_tick,
    ) -> None:
        self._game = game
        self._evaluator = evaluator
        self._weight_version = weight_version
        self._tick = tick
        most = most_leaves(game.packed_size(), game.num_distinct_actions(), game.value_size()) // config.leaves_per_step
        self._slots = max(1, min(slots, MAX_SLOTS, most))
        self._search = make_search(game, strongest(config, num_simulations), num_slots=self._slots, seed=seed, autoplay=False)
        capacity = self._slots * config.leaves_per_step
        self._packed = np.zeros((capacity, game.packed_size()), np.uint8)
        self._leaf_slots = np.zeros(capacity, np.int32)
        self._num_actions, self._value_size = game.num_distinct_actions(), game.value_size()
        self._next_uid = 1

    def results(self, histories: Sequence[Sequence[int]]) -> list[_core.Result]:
        """Root statistics of each position, given as its actions from the initial state or as a `Line`.

        Raises `IllegalActionError` for actions that do not replay and `EvaluationTimeout` when no evaluation comes.
        """
        results: list[_core.Result] = []
        for start in range(0, len(histories), self._slots):
            results += self._chunk(histories[start : start + self._slots])
        return results

    def _chunk(self, histories: Sequence[Sequence[int]]) -> list[_core.Result]:
        waiting = 0
        try:
            for slot, actions in enumerate(histories):
                self._start(slot, actions)
            while waiting := self._search.collect(self._packed, self._leaf_slots):
                packed = self._packed[:waiting]
                evaluation = evaluate(self._evaluator, packed, weight_version=self._weight_version, tick=self._tick)
                self._search.apply(evaluation.logits, evaluation.values, evaluation.weight_version)
                waiting = 0
            return [self._search.result(slot) for slot in range(len(histories))]
        finally:
            if waiting:  # interrupted: the core wants its answer before it forgets the question
                self._search.apply(np.zeros((waiting, self._num_actions), np.float16), np.zeros((waiting, self._value_size), np.float16))
            for slot in range(len(histories)):
                self._search.clear(slot)

    def _start(self, slot: int, actions: Sequence[int]) -> None:
        if isinstance(actions, Line):
            self._search.start_at(slot, self._next_uid, position(self._game, actions))
        else:
            self._search.start(slot, self._next_uid, np.asarray(actions, np.uint16))
        self._next_uid += 1
