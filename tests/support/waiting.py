"""Waiting for what another thread or process does: never a sleep of a guessed length."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0  # with what has to happen, however busy the machine is: no test's verdict is a matter of time


def until(condition: Callable[..., T], what: str = "what was waited for", within_s: float = PATIENCE_S) -> T:
    """The first true answer of a condition, asked every few milliseconds; an assertion error that names what did not come in time."""
    pause, deadline_s = threading.Event(), time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come within {within_s:g} s"
        pause.wait(0.01)
    return answer
