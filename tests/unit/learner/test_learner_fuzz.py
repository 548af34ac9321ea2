"""Files of weights and checkpoints, damaged anyhow: one named error, or the very content that was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from azq.errors import StoreError, WeightsError
from azq.learner import checkpoint
from azq.learner.checkpoint import Checkpoint, TrainState
from azq.nets.weights import WeightsMeta, from_bytes, to_bytes

MODULE = torch.nn.Linear(3, 2)
WEIGHTS = to_bytes(MODULE, WeightsMeta("tic_tac_toe", version=1, step=2, params={}, network={}))
STATE = TrainState(checkpoint.SCHEMA, "tic_tac_toe", 5, 6, 7, 8, 0.5, 0.25, shares=(4, 2))


def damaged(data: st.DataObject, good: bytes) -> bytes:
    if data.draw(st.booleans()):
        return good[: data.draw(st.integers(0, len(good) - 1))] + data.draw(st.binary(max_size=32))
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    return bytes(changed)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_weights_are_refused_or_finite(data: st.DataObject) -> None:
    """Which weights they are is told by the hash in their event, not by the file."""
    try:
        state, meta = from_bytes(damaged(data, WEIGHTS))
    except WeightsError:
        return
    assert all(bool(torch.isfinite(value).all()) for value in state.values() if value.is_floating_point())
    assert isinstance(meta.version, int)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_bytes_that_are_no_weights_are_refused(data: bytes) -> None:
    with pytest.raises(WeightsError):
        from_bytes(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint."""
    return checkpoint.save(tmp_path_factory.mktemp("whole"), Checkpoint(STATE, {"weights/a": torch.ones(3)}))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_checkpoint_is_refused(tmp_path_factory: pytest.TempPathFactory, whole: Path, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    path = folder / whole.name
    bad = damaged(data, whole.read_bytes())
    path.write_bytes(bad)
    if bad == whole.read_bytes():
        assert checkpoint.load(path).state == STATE
        return
    with pytest.raises(StoreError):
        checkpoint.load(path)
