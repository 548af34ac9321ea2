"""Event streams that are open: how many there may be, and that all of them end when the daemon does."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from azq.errors import TooManyRequests

MEDIA_TYPE = "text/event-stream"


class Streams:
    """Counts open streams; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open = 0
        self.closing = False

    def enter(self, most: int) -> None:
        """Takes a place. Raises `TooManyRequests` where there is none left."""
        with self._lock:
            if self.open >= most:
                raise TooManyRequests(f"{self.open} event streams are open, as many as daemon.event_streams allows; end one, or raise it")
            self.open += 1

    def leave(self) -> None:
        """Gives a place back."""
        with self._lock:
            self.open -= 1

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
