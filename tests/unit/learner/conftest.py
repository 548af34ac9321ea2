"""Learner tests share two cores with everything else."""

from __future__ import annotations

import pytest
import torch
from learner_workplace import Workplace


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("azq.learner.learner.IDLE_S", 0.002)
    monkeypatch.setattr("azq.learner.data.intake_loop.IDLE_S", 0.002)


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path)
