"""uvicorn in a thread of a process that does other things too."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import uvicorn

from azq.errors import AzqError

START_WITHIN_S = 15.0


class _Uvicorn(uvicorn.Server):
    loop: asyncio.AbstractEventLoop  # from its start on

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)


class WebServer:
    """Serves on a bound socket; signals stay with the main thread. `what` names it where it does not start."""

    def __init__(self, settings: uvicorn.Config, listener: socket.socket, what: str, *, stop_within_s: float) -> None:
        self._server = _Uvicorn(settings)
        self._what = what
        self._stop_within_s = stop_within_s
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, name="web", daemon=True)

    def start(self) -> None:
        """Returns once it listens; `AzqError` when it does not get that far."""
        self._thread.start()
        deadline_s, pause = time.monotonic() + START_WITHIN_S, threading.Event()
        while not self._server.started:
            if not self.alive or time.monotonic() > deadline_s:
                raise AzqError(f"{self._what} did not start; see the lines above")
            pause.wait(0.01)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def ending(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._server.should_exit or not self.alive

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop, once it has started."""
        return self._server.loop

    def stop(self) -> None:
        """Lets open requests end, for a while."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(self._stop_within_s)
