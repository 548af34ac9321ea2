"""Memory that the ranks of one host share: found by all or by none, gone by name at once, right for any number of ranks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import in_ranks

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.nets import NetSpec, Network, build
from azq.parts.ranks import group as group_module
from azq.parts.ranks.group import RankGroup, shared_memory
from azq.parts.ranks.reducing import Averaging, HostReducing, Reducing, Stopwatch, sync_of

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(group_module, "SHARED_FOLDER", tmp_path)
    return tmp_path


def module() -> Network:
    return build(NetworkConfig(kind="mlp", blocks=1, channels=8), NetSpec.of(games.load("tic_tac_toe")), seed=0)


def kind_of_sync(group: RankGroup, **changes: Any) -> str:
    return type(sync_of(module(), LearnerConfig(device="cpu", **changes), CPU)).__name__


def test_what_one_rank_writes_the_others_read_and_no_name_is_left(folder):
    def body(group: RankGroup) -> tuple[list[float], list[str]]:
        memory = shared_memory(5)
        assert memory is not None
        assert memory.shape == (2, 3, 5)
        memory[1, group.place] = 10.0 * (group.place + 1)
        group.meet()
        return memory[1, :, 4].tolist(), os.listdir(folder)

    assert in_ranks(3, body) == [([10.0, 20.0, 30.0], [])] * 3


@pytest.mark.parametrize(("changes", "kind"), [({}, HostReducing), ({"compression": "fp16"}, Reducing), ({"sync_every": 2}, Averaging)])
def test_ranks_of_one_host_use_it_unless_asked_for_something_else(folder, changes, kind):
    assert in_ranks(2, lambda group: kind_of_sync(group, **changes)) == [kind.__name__] * 2


def full(file: int, start: int, size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", ["no room", "no folder", "other host", "one sees nothing"])
def test_where_one_cannot_share_none_does_and_gradients_travel(folder, monkeypatch, fault):
    mapped = group_module.mapped_memory
    if fault == "no room":
        monkeypatch.setattr(os, "posix_fallocate", full)
    elif fault == "no folder":
        monkeypatch.setattr(group_module, "SHARED_FOLDER", Path("/proc"))
    elif fault == "other host":
        monkeypatch.setattr(group_module, "mapped_memory", lambda name, shape: mapped(name and name + "x", shape))

    def body(group: RankGroup) -> tuple[str, list[str]]:
        if fault == "one sees nothing" and group.place == 2:
            group_module.mapped_memory = lambda name, shape: None  # in this rank's process alone
        return kind_of_sync(group), os.listdir(folder)

    ranks = 3 if fault == "one sees nothing" else 2
    assert in_ranks(ranks, body) == [(Reducing.__name__, [])] * ranks


def test_sums_are_those_of_every_step_and_the_same_bits_in_every_rank(folder):
    """Ranks at their own pace: a half of the memory is not written while another rank still reads it."""
    steps, shares = 30, (1, 2, 3)

    def body(group: RankGroup) -> np.ndarray:
        model = module()
        memory = shared_memory(sum(parameter.numel() for parameter in model.parameters()))
        assert memory is not None
        sync = HostReducing(model, memory, Stopwatch(CPU))
        sync.share(group.place, shares)
        parameters = list(model.parameters())
        found = []
        for step in range(steps):
            model.zero_grad(set_to_none=True)
            for _ in range((step * (group.place + 1)) % 3 * 200):  # uneven work
                torch.ones(8).sum()
            value = float((step + 1) * (group.place + 1))
            sync.backward(torch.stack([(value * parameter).sum() for parameter in parameters]).sum())
            found.append([parameter.grad.flatten()[-1].item() for parameter in parameters])
        assert sync.waited_s() > 0
        return np.array(found)

    results = in_ranks(3, body)
    wanted = np.array([(step + 1) * (1 * 1 + 2 * 2 + 3 * 3) / 6 for step in range(steps)])
    for found in results:
        assert np.array_equal(found, results[0])
        assert np.abs(found / wanted[:, None] - 1).max() < 1e-6
