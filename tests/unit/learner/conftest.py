"""A learner that waits for nothing long, and a place for one."""

from __future__ import annotations

import pytest
from learner_workplace import Workplace


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("azq.learner.learner.IDLE_S", 0.002)
    monkeypatch.setattr("azq.learner.data.intake_loop.IDLE_S", 0.002)


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path)
