"""uvicorn behind a door that was opened before all else, in a thread of a process that does other things too."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from azq import logs
from azq.config.host import ListenConfig
from azq.errors import AzqError, ConfigError
from azq.process.door import BACKLOG, USED_UP, Door, Phase

SWEEP_S = 1
START_WITHIN_S = 15.0
OWN_WORD: Any = {
    "workers": 1,
    "forwarded_allow_ips": "127.0.0.1,::1",
}  # of uvicorn's settings, in place of WEB_CONCURRENCY and FORWARDED_ALLOW_IPS

log = logs.get(__name__)

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


def open_door(config: ListenConfig, section: str = "daemon", **limits: Any) -> Door:
    """The door at the address that a section configures; `limits` as of `Door`. Raises as `bind`."""
    return bind(config.host, config.port, f"{section}.port", partial(Door, **limits))


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Where who listens answers."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class _Uvicorn(uvicorn.Server):
    loop: asyncio.AbstractEventLoop  # from its start on

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(_noted)
        await super().startup(sockets)


def _noted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A line in place of a traceback where no connection can be accepted for a while."""
    if isinstance(error := context.get("exception"), OSError) and error.errno in USED_UP:
        log.warning("accepting_paused", reason=str(error))
    else:
        loop.default_exception_handler(context)


class Conversation(H11Protocol):
    """uvicorn's protocol over a connection that came through a door."""

    def __init__(self, door: Door, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door = door
        self._upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._visitor = self._door.visitors.get(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._tell()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell()

    def _tell(self) -> None:
        if self._visitor is not None:
            self._visitor.enter(self._phase())

    def _phase(self) -> Phase:
        if self._upgraded:
            return Phase.ANSWER
        if self.conn.their_state is h11.SEND_BODY:
            return Phase.BODY
        return Phase.ANSWER if self.cycle is not None and not self.cycle.response_complete else Phase.HEADERS


class WebServer:
    """Serves an app behind a door; signals stay with the main thread. `what` names it where it does not start, `settings` are uvicorn's."""

    def __init__(self, app: ASGIApp, door: Door, what: str, config: ListenConfig, *, stop_within_s: float, **settings: Any) -> None:
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=partial(Conversation, door),  # type: ignore[arg-type]
                loop="asyncio",  # which accepts through the door's own method
                backlog=BACKLOG,
                callback_notify=door.sweep,
                timeout_notify=SWEEP_S,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_certfile=config.tls_certificate,
                ssl_keyfile=config.tls_key,
                **OWN_WORD | settings,
            )
        )
        self._what = what
        self._door = door
        self._stop_within_s = stop_within_s
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [door]}, name="web", daemon=True)

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
        self._door.close()
