"""Worker processes for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_doubles import Fleet


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(broker, tmp_path)
    yield one
    one.close()
