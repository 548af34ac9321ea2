"""One browser for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as one:
        yield one
