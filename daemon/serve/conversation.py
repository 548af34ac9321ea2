"""HTTP on one connection, which tells the door what it is about."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.serve.door import Door, Phase


class Conversation(H11Protocol):
    """uvicorn's protocol over a connection that came through a door."""

    def __init__(self, door: Door, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Finds the visitor behind a connection."""
        super().connection_made(transport)
        self._visitor = self._door.visitors.get(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        """Takes in bytes."""
        super().data_received(data)
        self._tell()

    def on_response_complete(self) -> None:
        """Goes on to the next request of the connection."""
        super().on_response_complete()
        self._tell()

    def _tell(self) -> None:
        if self._visitor is not None:
            self._visitor.enter(self._phase())

    def _phase(self) -> Phase:
        if self.conn.their_state is h11.SEND_BODY:
            return Phase.BODY
        answering = self.cycle is not None and not self.cycle.response_complete
        return Phase.ANSWER if answering else Phase.HEADERS
