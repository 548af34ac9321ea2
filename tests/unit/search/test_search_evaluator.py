"""The evaluator that knows nothing."""

from __future__ import annotations

import numpy as np
import pytest

from azq.search.evaluator import UniformEvaluator


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
