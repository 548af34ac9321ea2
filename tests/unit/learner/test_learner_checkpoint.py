"""A checkpoint is whole or not there; damage falls back to the one before and is said."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from azq import files
from azq.errors import StoreError
from azq.learner import checkpoint
from azq.learner.checkpoint import Checkpoint, TrainState


def state_at(step: int, **fields: Any) -> TrainState:
    values = {
        "schema": checkpoint.SCHEMA,
        "game": "tic_tac_toe",
        "step": step,
        "samples_consumed": step * 32,
        "duplicates_dropped": 1,
        "weight_version": 2,
        "loss_policy": 1.0,
        "loss_value": 0.5,
    }
    return TrainState(**{**values, **fields})


def write(folder: Path, step: int) -> None:
    checkpoint.save(folder, Checkpoint(state_at(step), {"weights/a": torch.full((2, 3), float(step))}))


def test_what_was_saved_is_loaded(tmp_path):
    write(tmp_path, 5)
    found = checkpoint.load_newest(tmp_path)
    assert found.state == state_at(5)
    assert torch.equal(found.tensors["weights/a"], torch.full((2, 3), 5.0))
    assert not list(tmp_path.glob("*.tmp"))


def test_no_folder_is_no_checkpoint(tmp_path):
    assert checkpoint.load_newest(tmp_path / "none") is None


def test_the_newest_three_are_kept(tmp_path):
    for step in (1, 2, 30, 4):
        write(tmp_path, step)
    assert [checkpoint.load(path).state.step for path in checkpoint.stored(tmp_path)] == [2, 4, 30]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_newest_falls_back_to_the_one_before_and_is_said(tmp_path, capsys, damage):
    write(tmp_path, 1)
    write(tmp_path, 2)
    path = checkpoint.stored(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
    path.write_bytes(bytes(data[: {"cut": len(data) - 5, "flip": len(data), "empty": 0}[damage]]))
    assert checkpoint.load_newest(tmp_path).state.step == 1
    said = capsys.readouterr().out
    assert "checkpoint_passed_over" in said
    assert path.name in said


def test_nothing_but_damage_is_an_error_with_a_remedy(tmp_path):
    write(tmp_path, 1)
    checkpoint.stored(tmp_path)[0].write_bytes(b"x")
    with pytest.raises(StoreError, match="move them away"):
        checkpoint.load_newest(tmp_path)


def test_another_schema_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, Checkpoint(state_at(1, schema=99), {}))
    with pytest.raises(StoreError, match="schema 99"):
        checkpoint.load(path)


def test_a_full_disk_leaves_the_older_ones_and_no_trace(tmp_path, monkeypatch):
    write(tmp_path, 1)

    def write_some(file: int, data: bytes) -> None:
        os.write(file, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", write_some)
    with pytest.raises(StoreError, match="No space left"):
        write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["000000000001.ckpt"]
    assert checkpoint.load_newest(tmp_path).state.step == 1
