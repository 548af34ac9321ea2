"""How far long work is, told now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

TELL_EVERY_S = 2.0


class ProgressLine:
    """A tick that now and then tells how far it is."""

    def __init__(self, tell: Callable[[str], object], text: Callable[[], str]) -> None:
        self._tell, self._text = tell, text
        self._next = time.monotonic() + TELL_EVERY_S

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_EVERY_S
            self._tell(self._text())
