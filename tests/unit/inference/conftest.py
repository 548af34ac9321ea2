"""The fake CUDA device, for whichever test asks for it."""

from __future__ import annotations

import sys

import pytest
import torch
from fake_cuda import FakeCuda, unpack_bits


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The fake device in torch's place."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)  # put back at the end
    monkeypatch.setattr(sys.modules["azq.nets.network"], "unpack_bits", unpack_bits)
    fake = FakeCuda()
    fake.install(monkeypatch.setattr)
    return fake
