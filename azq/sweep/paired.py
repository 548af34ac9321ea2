"""Whether a run plays the same graded positions worse than another, position by position. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from azq.arena.positions import PositionMark

Graded = Mapping[str, str]  # thousandths of a run's progress -> its marks there, as `Strength.marks`
KEPT, LOST = str(PositionMark.KEPT.value), str(PositionMark.LOST.value)


def surely_worse(ours: Graded, best: Graded, certainty: float) -> bool:
    """Whether the newest of `ours` lost more positions than `best` did there at last; False where they cannot be told apart.

    An exact one-sided sign test over the positions that one alone lost (McNemar, 1947): what both find hard blurs nothing.
    """
    step = max(map(int, ours), default=0)
    before = [int(there) for there in best if int(there) <= step]
    if not ours or not before:
        return False
    pairs = list(zip(ours[str(step)], best[str(max(before))], strict=False))
    return chance_of(pairs.count((LOST, KEPT)), pairs.count((KEPT, LOST))) <= 1.0 - certainty


def chance_of(more: int, less: int) -> float:
    """How likely `more` or more of all are on one side where each falls on either side alike."""
    count = more + less
    return float(sum(math.comb(count, side) for side in range(more, count + 1)) / 2**count)
