"""uvicorn on a socket that was bound before all else, in a thread of a process that does other things too."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import uvicorn

from azq.errors import AzqError, ConfigError

START_WITHIN_S = 15.0
OWN_WORD: Any = {
    "workers": 1,
    "forwarded_allow_ips": "127.0.0.1,::1",
}  # of uvicorn's settings, in place of WEB_CONCURRENCY and FORWARDED_ALLOW_IPS

S = TypeVar("S", bound=socket.socket)


def bind(host: str, port: int, setting: str, make: Callable[[int, int, int], S]) -> S:
    """A socket to listen with; `ConfigError` names the setting where the address is taken, or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        listener = make(family, kind, protocol)  # asyncio sends at once (TCP_NODELAY) only where the protocol is named
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        raise ConfigError(f"{host}:{port} {what}; stop the other process, or set {setting} (0: any free one)") from None
    return listener


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Where who listens answers."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


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
