"""Bare evaluations of states, in batches, waiting for the evaluator with patience. Letters: B states, V values per state."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.arena.tick import Tick, no_tick
from azq.errors import EvaluationTimeout
from azq.search.evaluator import Evaluation, Evaluator
from azq.wire.messages import LATEST

POLL_S = 0.1
PATIENCE_S = 60.0  # without any evaluation for so long: give up
MAX_BATCH = 1024


def evaluate(evaluator: Evaluator, packed: NDArray[np.uint8], *, weight_version: int = LATEST, tick: Tick = no_tick) -> Evaluation:
    """The evaluation of one batch of observations; raises `EvaluationTimeout` when none comes, and what `tick` raises."""
    handle = evaluator.submit(packed, weight_version=weight_version)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        tick()
        evaluation = evaluator.result(handle, timeout_s=POLL_S)
        if evaluation is not None:
            return evaluation
        if time.monotonic() > deadline:
            raise EvaluationTimeout(f"no evaluation of {len(packed)} leaves for {PATIENCE_S:.0f} s; is an inference worker alive?")


def values_of(
    evaluator: Evaluator, states: Sequence[_core.State], *, weight_version: int = LATEST, tick: Tick = no_tick
) -> NDArray[np.float32]:
    """The network's values (B, V) of states where a player is to move, relative to him. Raises as `evaluate`."""
    parts = []
    for start in range(0, len(states), MAX_BATCH):
        packed = np.stack([state.packed_observation() for state in states[start : start + MAX_BATCH]])
        parts.append(evaluate(evaluator, packed, weight_version=weight_version, tick=tick).values.astype(np.float32))
    return np.concatenate(parts)
