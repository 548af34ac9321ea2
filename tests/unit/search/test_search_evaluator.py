"""Evaluators: the uniform double, and the mean of several."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from azq import games
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.search.evaluator import EnsembleEvaluator, Evaluation, UniformEvaluator, joined
from azq.wire.messages import LATEST


def test_zeros_of_the_right_shapes_in_any_order():
    evaluator = UniformEvaluator(num_actions=5, value_size=3)
    first, second = evaluator.submit(np.zeros((4, 9), np.uint8)), evaluator.submit(np.zeros((2, 9), np.uint8), weight_version=8)
    later, earlier = evaluator.result(second, timeout_s=0.0), evaluator.result(first, timeout_s=0.0)
    assert earlier.logits.shape == (4, 5)
    assert earlier.values.shape == (4, 3)
    assert later.logits.shape == (2, 5)
    for evaluation in (earlier, later):
        assert evaluation.logits.dtype == evaluation.values.dtype == np.float16
        assert not evaluation.logits.any()
        assert not evaluation.values.any()
        assert evaluation.weight_version == 0
    evaluator.close()


def test_a_handle_is_good_once():
    evaluator = UniformEvaluator(3)
    handle = evaluator.submit(np.zeros((1, 2), np.uint8))
    evaluator.result(handle, timeout_s=0.0)
    with pytest.raises(KeyError):
        evaluator.result(handle, timeout_s=0.0)


class Constant:
    """Answers each version with its number a hundred times smaller, one look late where it is told."""

    resent = 2

    def __init__(self, *, late: int = 0) -> None:
        self.asked: list[int] = []
        self.late = late
        self.closed = 0
        self._sizes: list[int] = []

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        self.asked.append(weight_version)
        self._sizes.append(len(packed))
        return len(self._sizes) - 1

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        if self.late:
            self.late -= 1
            return None
        size, version = self._sizes[handle], self.asked[handle]
        return Evaluation(np.full((size, 9), version / 100, np.float16), np.full((size, 1), version / 100, np.float16), version)

    def outcomes(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.full((len(packed), 5), 0.25, np.float32)

    def close(self) -> None:
        self.closed += 1


def test_every_version_is_asked_once_and_the_mean_is_told_by_the_newest():
    inner = Constant()
    ensemble = joined(inner, (3, 7, 5))
    found = ensemble.result(ensemble.submit(np.zeros((4, 2), np.uint8), weight_version=7), timeout_s=0.0)
    assert found is not None
    assert inner.asked == [3, 7, 5]
    assert found.logits == pytest.approx(np.full((4, 9), 0.05), abs=1e-4)
    assert found.values == pytest.approx(np.full((4, 1), 0.05), abs=1e-4)
    assert found.logits.dtype == found.values.dtype == np.float16
    assert found.weight_version == 7
    assert ensemble.resent == 6


def test_one_version_and_an_ensemble_stay_what_they_are():
    inner = Constant()
    assert joined(inner, (3,)) is inner
    ensemble = joined(inner, (3, 4))
    assert joined(ensemble, (3, 4)) is ensemble


def test_a_late_member_is_waited_for_and_the_others_are_not_asked_again():
    quick, slow = Constant(), Constant(late=2)
    ensemble = EnsembleEvaluator([(quick, 2), (slow, 4)])
    handle = ensemble.submit(np.zeros((1, 2), np.uint8))
    assert ensemble.result(handle, timeout_s=0.0) is None
    assert ensemble.result(handle, timeout_s=0.0) is None
    found = ensemble.result(handle, timeout_s=0.0)
    assert found is not None
    assert found.weight_version == 4
    assert quick.asked == [2]
    with pytest.raises(KeyError):
        ensemble.result(handle, timeout_s=0.0)


def test_outcomes_are_the_mean_of_all_and_refused_where_a_member_has_none():
    assert EnsembleEvaluator([(Constant(), 1), (Constant(), 2)]).outcomes(np.zeros((2, 3), np.uint8)) == pytest.approx(0.25)

    class Plain:
        resent = 0
        submit, result, close = Constant.submit, Constant.result, Constant.close

    with pytest.raises(ConfigError, match="knows no outcomes"):
        EnsembleEvaluator([(Constant(), 1), (Plain(), 2)]).outcomes(np.zeros((2, 3), np.uint8))


def test_each_evaluator_is_closed_once():
    one, other = Constant(), Constant()
    EnsembleEvaluator([(one, 1), (one, 2), (other, 1)]).close()
    assert (one.closed, other.closed) == (1, 1)


def test_a_player_of_several_versions_plays_by_all_of_them():
    game, inner = games.load("tic_tac_toe"), Constant()
    player = make_player("weights:2,9", Ground(game, inner, SearchConfig(), 8))
    assert player.name == "weights:2,9"
    assert player.choose([[0, 1]])[0] in game.new_initial_state().legal_actions()
    assert set(inner.asked) == {2, 9}
