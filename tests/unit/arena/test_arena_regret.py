"""The regret of a network: by hand, in its bounds, and told apart in pairs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.arena.positions import Position
from azq.arena.regret import Mean, Regret, calibration_error, regret_of, reliability


def result(logits: list[float], policy: list[float], value: float) -> Any:
    return SimpleNamespace(prior_logits=np.array(logits, np.float32), policy=np.array(policy, np.float32), root_value=value)


def position(**moves: float) -> Position:
    return Position((), {tuple(int(action) for action in name[1:].split("_")): value for name, value in moves.items()}, "")


def test_each_move_loses_by_its_share() -> None:
    graded = position(a0=1.0, a1=-1.0)  # the third is not listed, and counts as the worst
    asked = result([0.0, 0.0, -math.inf], [0.75, 0.0, 0.25], 0.5)
    found = regret_of([graded], [asked])
    assert (found.policy[0], found.search[0]) == (pytest.approx(1.0), pytest.approx(0.5))
    assert (found.said[0], found.best[0], found.value_error[0]) == (0.5, 1.0, 0.25)


def test_no_position_has_no_error_to_tell() -> None:
    assert Mean.of(np.zeros(0)) == Mean(0.0, math.inf)
    assert len(regret_of([], []).policy) == 0


@given(st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=60))
def test_reliability_counts_every_position_once(rows: list[tuple[float, float]]) -> None:
    said, best = np.array(rows).T
    found = Regret(said * 0, said * 0, said, best)
    bins = reliability(found)
    assert sum(count for *_, count in bins) == len(rows)
    assert sum(true * count for _, true, count in bins) == pytest.approx(best.sum())
    assert 0 <= calibration_error(found) <= 2
    assert calibration_error(Regret(said * 0, said * 0, best, best)) == pytest.approx(0.0)
