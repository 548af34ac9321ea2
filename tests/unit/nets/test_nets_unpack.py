"""Bits out of bytes: the host's way and the devices' give the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from azq.nets import unpack_bits


@pytest.mark.parametrize(("size", "count"), [(1, 1), (1, 8), (3, 17), (11, 84), (20, 151)])
@pytest.mark.parametrize("as_on_devices", [False, True])
def test_bits_come_lowest_first_and_no_more_than_asked_for(size, count, as_on_devices, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: as_on_devices)
    rows = np.random.default_rng(size).integers(0, 256, (5, size + 2), dtype=np.uint8)
    found = unpack_bits(torch.from_numpy(rows)[:, :size], count)  # a slice: its rows do not touch
    assert found.dtype == torch.uint8
    assert found.tolist() == [[row[bit // 8] >> (bit % 8) & 1 for bit in range(count)] for row in rows.tolist()]
