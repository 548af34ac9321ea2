"""The regret of a network: by hand, in its bounds, and told apart in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.arena.player import Ground
from azq.arena.players import NetworkPlayer, StatePlayer
from azq.arena.regret import Mean, Regret, calibration_error, judged, regret_of, reliability
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.games import load as load_game
from azq.ratings.positions import Position


def result(logits: list[float], policy: list[float], value: float) -> Any:
    return SimpleNamespace(prior_logits=np.array(logits, np.float32), policy=np.array(policy, np.float32), root_value=value)


def position(**moves: float) -> Position:
    return Position((), {tuple(int(action) for action in name[1:].split("_")): value for name, value in moves.items()}, "")


def test_each_move_loses_by_its_share() -> None:
    graded = position(a0=1.0, a1=-1.0)  # the third is not listed, and counts as the worst
    asked = result([0.0, 0.0, -math.inf], [0.75, 0.0, 0.25], 0.5)
    found = regret_of([graded], [asked])
    assert (found.policy[0], found.search[0]) == (pytest.approx(1.0), pytest.approx(0.5))
    assert (found.search_value[0], found.best[0], found.value_error[0]) == (0.5, 1.0, 0.25)


def test_a_mean_has_the_error_of_a_sample() -> None:
    found = Mean.of(np.array([1.0, 2.0, 6.0]))
    assert (found.value, found.error) == (pytest.approx(3.0), pytest.approx(math.sqrt(7.0 / 3)))
    assert Mean.of(np.array([4.0])) == Mean(4.0, math.inf)
    assert Mean.of(np.array([4.0, 4.0])) == Mean(4.0, 0.0)


def test_bins_are_tenths_of_what_can_be_said() -> None:
    said = np.array([-1.0, -0.85, -0.75, -0.5, 0.0, 0.1, 0.19, 0.79, 0.81, 1.0])
    best = np.array([-1.0, -1.0, -0.75, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    found = Regret(said * 0, said * 0, said, best)
    assert [count for *_, count in reliability(found)] == [2, 1, 1, 3, 1, 2]
    assert reliability(found)[0][:2] == (pytest.approx(-0.925), -1.0)
    gaps = (0.075 * 2, 1.5, abs(0.29 - 1.0), 0.21, 0.095 * 2)
    assert calibration_error(found) == pytest.approx(sum(gaps) / 10)
    assert calibration_error(Regret(said[:0], said[:0], said[:0], best[:0])) == 0.0
    one = Regret(said[:1], said[:1], np.array([0.5]), np.array([0.0]))
    assert calibration_error(one) == 0.5


class Judging(NetworkPlayer):
    """Would play the first move everywhere."""

    def __init__(self) -> None:
        self.name = "judging"

    def results(self, histories: Sequence[Sequence[int]]) -> list[Any]:
        return [SimpleNamespace(best_action=2, **vars(result([0.0] * 9, [0.0, 0.0, 1.0, *[0.0] * 6], 0.5))) for _ in histories]


def test_a_network_is_judged_by_its_search_where_moves_are_single_actions() -> None:
    game = load_game("tic_tac_toe")
    graded = Position((0, 4, 1, 8), {(2,): 1.0, (3,): -1.0}, "end")
    (mark,), regret = judged(game, Judging(), [graded])
    assert (mark.loss, mark.loses_class) == (0.0, False)
    assert regret is not None
    assert regret.search.tolist() == [0.0]
    assert regret.policy.tolist() == [pytest.approx(2.0 * 8 / 9)]
    plain = StatePlayer("plain", lambda _: SimpleNamespace(best_action=lambda state: 3), Ground(game, None, SearchConfig(), 1))
    (mark,), none = judged(game, plain, [graded])
    assert (mark.loss, none) == (2.0, None)
    turns = Position((0, 4, 1, 8), {(2,): 1.0, (3, 5): -1.0}, "end")
    assert judged(game, Judging(), [graded, graded])[1] is not None
    with pytest.raises(ConfigError):
        judged(game, Judging(), [turns])  # is marked as turns are


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
