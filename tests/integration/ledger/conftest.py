"""A ledger for each test, with its bus and its clock."""

from __future__ import annotations

import pytest
from ledger_worlds import World


@pytest.fixture
def world() -> World:
    return World()
