"""Unit tests share two cores with everything else."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Torch's threads wait for each other at work on cores that they do not have."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 1
    if before > 1:
        torch.set_num_threads(1)
    yield
    if before > 1:
        torch.set_num_threads(before)
