"""Evaluates and searches many positions at once, to a fixed budget: what players, grading and analysis share.

Letters: B states, V values per state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.arena.player import MAX_SLOTS, Line, Played, Tick, no_tick, position
from azq.config import SearchConfig
from azq.search.evaluator import Evaluation, Evaluator
from azq.search.portable import PortableSearch
from azq.search.search import Result, check_search, leaves_at_once, make_search, strongest, until_stopped
from azq.waiting import until
from azq.wire.codec import most_leaves
from azq.wire.messages import LATEST

POLL_S = 0.1
PATIENCE_S = 60.0  # without any evaluation for so long: give up

T = TypeVar("T")


def evaluate(evaluator: Evaluator, packed: NDArray[np.uint8], *, weight_version: int = LATEST, tick: Tick = no_tick) -> Evaluation:
    """The evaluation of one batch of observations; raises `EvaluationTimeout` when none comes, and what `tick` raises."""
    handle = evaluator.submit(packed, weight_version=weight_version)

    def check() -> Evaluation | None:
        tick()
        return evaluator.result(handle, timeout_s=POLL_S)

    failure = f"no evaluation of {len(packed)} leaves for {PATIENCE_S:.0f} s; is an inference worker alive?"
    return until(check, failure, PATIENCE_S, every_s=0.0)


class Searcher:
    """A player's search over lists of positions, without exploration, by one pinned weight version; `tick` is called between steps.

    With `move_ms` each position is searched alone until so many milliseconds of `clock` have passed: at least one simulation, and at most
    a step of `leaves_per_step` too long.
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
        move_ms: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._game = game
        self._evaluator = evaluator
        self._weight_version = weight_version
        self._tick = tick
        check_search(config, game)
        self._move_s, self._clock = move_ms / 1000, clock
        search = until_stopped(config, move_ms) if move_ms else strongest(config, num_simulations)
        leaves = leaves_at_once(search, game)
        most = most_leaves(game.packed_size(), game.num_distinct_actions(), game.value_size()) // leaves
        self._slots = max(1, min(1 if move_ms else slots, MAX_SLOTS, most))
        self._search = make_search(game, search, num_slots=self._slots, seed=seed, autoplay=False)
        capacity = self._slots * leaves
        self._packed = np.zeros((capacity, game.packed_size()), np.uint8)
        self._leaf_slots = np.zeros(capacity, np.int32)
        self._num_actions, self._value_size = game.num_distinct_actions(), game.value_size()
        self._next_uid = 1

    @property
    def simulations(self) -> int:
        """Done so far."""
        return self._search.simulations

    def results(self, histories: Sequence[Sequence[int]]) -> list[Result]:
        """Root statistics of each position, given as its actions from the initial state or as a `Line`.

        Raises `IllegalActionError` for actions that do not replay and `EvaluationTimeout` when no evaluation comes.
        """
        return self._in_chunks(histories, self._search.result)

    def results_and_lines(self, histories: Sequence[Sequence[int]]) -> list[tuple[Result, list[int]]]:
        """Root statistics with the play that the search expects; raises as `results`."""
        return self._in_chunks(histories, lambda slot: (result := self._search.result(slot), self._line(slot, result.best_action)))

    def _line(self, slot: int, action: int) -> list[int]:
        """The best action and the most visited replies, as far as the tree knows them without chance or hidden information."""
        state, line = self._search.state(slot), [action]
        if isinstance(self._search, PortableSearch):
            return line
        mover, tree, node = state.current_player(), self._search.tree(slot), 0
        while True:
            state.apply_action(line[-1])
            actor = state.current_player()
            if actor < 0 or (self._game.is_hidden() and actor != mover):
                return line
            # Below chance an action leads to several nodes, those of other players among them.
            children = np.flatnonzero((tree["parent"] == node) & (tree["action"] == line[-1]) & (tree["actor"] == actor))
            replies = [
                (int(tree["child_visits"][child, reply]), -reply, int(child)) for child in children for reply in state.legal_actions()
            ]
            visits, reply, node = max(replies, default=(0, 0, 0))
            if not visits:
                return line
            line.append(-reply)

    def _in_chunks(self, histories: Sequence[Sequence[int]], read: Callable[[int], T]) -> list[T]:
        results: list[T] = []
        for start in range(0, len(histories), self._slots):
            results += self._chunk(histories[start : start + self._slots], read)
        return results

    def _chunk(self, histories: Sequence[Sequence[int]], read: Callable[[int], T]) -> list[T]:
        waiting, end_s, begun = 0, self._clock() + self._move_s, self._search.simulations
        try:
            for slot, actions in enumerate(histories):
                self._start(slot, actions)
            while waiting := self._search.collect(self._packed, self._leaf_slots):
                packed = self._packed[:waiting]
                evaluation = evaluate(self._evaluator, packed, weight_version=self._weight_version, tick=self._tick)
                self._search.apply(evaluation.logits, evaluation.values, evaluation.weight_version)
                waiting = 0
                if self._move_s and self._clock() >= end_s and self._search.simulations > begun:
                    break
            return [read(slot) for slot in range(len(histories))]
        finally:
            if waiting:  # interrupted: the core wants its answer before it forgets the question
                self._search.apply(np.zeros((waiting, self._num_actions), np.float16), np.zeros((waiting, self._value_size), np.float16))
            for slot in range(len(histories)):
                self._search.clear(slot)

    def _start(self, slot: int, actions: Sequence[int]) -> None:
        uid = actions.number + 1 if isinstance(actions, Played) else self._next_uid
        if isinstance(actions, Line):
            self._search.start_at(slot, uid, position(self._game, actions))
        else:
            self._search.start(slot, uid, np.asarray(actions, np.uint16))
        self._next_uid += 1
