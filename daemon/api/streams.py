"""Event streams that are open: how many there may be, and that all of them end when the daemon does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from azq.errors import TooManyRequests

MEDIA_TYPE = "text/event-stream"


class Streams:
    """Counts open streams, of all and of each who asks; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        self.closing = False

    @property
    def open(self) -> int:
        """Streams that are open now."""
        return self._of.total()

    def enter(self, who: str, most: int, most_each: int) -> None:
        """Takes a place for the holder of a token. Raises `TooManyRequests` where there is none left, for all or for this one."""
        with self._lock:
            if self.open >= most:
                raise TooManyRequests(f"{self.open} event streams are open, as many as daemon.event_streams allows; end one, or raise it")
            if self._of[who] >= most_each:
                raise TooManyRequests(
                    f"token {who!r} has {self._of[who]} event streams open, as daemon.event_streams_each allows; end one, or raise it"
                )
            self._of[who] += 1

    def leave(self, who: str) -> None:
        """Gives a place back."""
        with self._lock:
            self._of[who] -= 1

    def close(self) -> None:
        """Asks all streams to end."""
        self.closing = True


class EventStream(StreamingResponse):
    """Server-sent events; `at_end` is called once, however the stream ends, also when it never began."""

    media_type = MEDIA_TYPE

    def __init__(self, content: AsyncIterator[str], at_end: Callable[[], None]) -> None:
        super().__init__(content, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._at_end()
