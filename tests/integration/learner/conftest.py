"""A run with processes of its learner for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner_processes import SECTIONS, Place


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Iterator[Place]:
    where = Place(broker.control_url, tmp_path, SECTIONS)
    yield where
    where.close()
