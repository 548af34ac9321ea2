"""HTTP from a process that does other things too: uvicorn in a thread, whose listening socket bounds connections and their idle time.

Connections share the process's descriptors with those of brokers, without which nothing ticks. So there is a bound on all and on those of
one address, counted from the moment of acceptance (also before any handshake). A new one beyond it takes the place of the
one whose request takes longest; one that is being answered, or is a WebSocket, is never dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Protocol, TypeVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from azq import logs
from azq.config.host import ListenConfig
from azq.errors import AzqError, ConfigError

SWEEP_S = 1
START_WITHIN_S = 15.0
UVICORN_SETTINGS: Any = {
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


def open_listener(config: ListenConfig, section: str = "daemon", **limits: Any) -> BoundedListener:
    """The listener at the address that a section configures; `limits` as of `BoundedListener`. Raises as `bind`."""
    return bind(config.host, config.port, f"{section}.port", partial(BoundedListener, **limits))


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class _Uvicorn(uvicorn.Server):
    loop: asyncio.AbstractEventLoop  # from its start on

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(_log_pause)
        await super().startup(sockets)


def _log_pause(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A line in place of a traceback where no connection can be accepted for a while."""
    if isinstance(error := context.get("exception"), OSError) and error.errno in USED_UP:
        log.warning("accepting_paused", reason=str(error))
    else:
        loop.default_exception_handler(context)


class TrackingProtocol(H11Protocol):
    """uvicorn's protocol, which tells its connection which phase it is in."""

    def __init__(self, listener: BoundedListener, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._listener = listener
        self._upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._tracked = self._listener.connections.get(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._report_phase()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._report_phase()

    def _report_phase(self) -> None:
        if self._tracked is not None:
            self._tracked.enter(self._phase())

    def _phase(self) -> Phase:
        if self._upgraded:
            return Phase.ANSWER
        if self.conn.their_state is h11.SEND_BODY:
            return Phase.BODY
        return Phase.ANSWER if self.cycle is not None and not self.cycle.response_complete else Phase.HEADERS


class WebServer:
    """Serves an app; signals stay with the main thread. `what` names it where it does not start, `settings` are uvicorn's."""

    def __init__(
        self, app: ASGIApp, listener: BoundedListener, what: str, config: ListenConfig, *, stop_within_s: float, **settings: Any
    ) -> None:
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=partial(TrackingProtocol, listener),  # type: ignore[arg-type]
                loop="asyncio",  # which calls the listener's `accept`
                backlog=BACKLOG,
                callback_notify=listener.sweep,
                timeout_notify=SWEEP_S,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_certfile=config.tls_certificate,
                ssl_keyfile=config.tls_key,
                **UVICORN_SETTINGS | settings,
            )
        )
        self._what = what
        self._listener = listener
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
        self._listener.close()


MOST_CONNECTIONS = 2048
RESERVED = 256  # descriptors for brokers, files and what is being accepted
FEWEST_CONNECTIONS = 16
BACKLOG = 128  # connections that wait to be accepted, and that are accepted at once
HEADERS_S = 10.0
BODY_S = 30.0
LOG_EVERY_S = 60.0
PAUSE_S = 0.5  # without accepting, where descriptors or memory are used up; less than asyncio's own second
USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
CLIENT_PREFIX_BITS = 64  # bits of an IPv6 address that one customer of a network has

Network = IPv4Network | IPv6Network


def client_of(address: str) -> str:
    """Key of the client behind an address: the /64 of IPv6, and IPv4 also where it is mapped into IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((parsed, CLIENT_PREFIX_BITS), strict=False))


class Phase(Enum):
    """Phase of a request, and its time limit in seconds."""

    HEADERS = HEADERS_S
    BODY = BODY_S
    ANSWER = float("inf")


class OpenRequest(Protocol):
    """What deciding about a connection needs."""

    address: str
    phase: Phase
    since_s: float  # when the phase began


RequestT = TypeVar("RequestT", bound=OpenRequest)


def connection_limit(descriptors: int, wanted: int = MOST_CONNECTIONS) -> int:
    """Most connections for a process with so many descriptors (-1: no limit), at most those wanted."""
    return wanted if descriptors < 0 else max(FEWEST_CONNECTIONS, min(wanted, descriptors - RESERVED))


def connection_to_drop(pending: Collection[RequestT], newest: RequestT, most: int, per_client: int) -> RequestT | None:
    """Connection to drop so that the newest can stay: None while there is room, the newest where all others are being answered.

    One address has room for `per_client`; beyond that one from the same address goes.
    """
    of_address = [connection for connection in pending if connection.address == newest.address]
    crowd = of_address if len(of_address) >= per_client else pending if len(pending) >= most else []
    if not crowd:
        return None
    return min(
        (connection for connection in crowd if connection.phase is not Phase.ANSWER),
        key=lambda connection: connection.since_s,
        default=newest,
    )


def overdue(pending: Collection[RequestT], now_s: float) -> list[RequestT]:
    """Connections beyond the time limit of their phase."""
    return [connection for connection in pending if now_s - connection.since_s > connection.phase.value]


class TrackedConnection(socket.socket):
    """An accepted connection, counted by its listener until it is closed or dropped."""

    def __init__(self, listener: BoundedListener, accepted: socket.socket, address: str) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._listener = listener
        self.address = address
        self.phase = Phase.HEADERS
        self.since_s = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """Notes what the connection does now; the same as before changes nothing, however many bytes came."""
        if phase is not self.phase:
            self.phase, self.since_s = phase, time.monotonic()

    def drop(self) -> None:
        """Shuts the connection down; its reader sees the end and closes it."""
        self._listener.forget(self)
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.forget(self)
        super().close()


class BoundedListener(socket.socket):
    """A listening socket that counts what it accepted; one address may use half of the room, a proxy all of it."""

    def __init__(self, family: int, kind: int, protocol: int, most: int = MOST_CONNECTIONS, proxies: Collection[Network] = ()) -> None:
        super().__init__(family, kind, protocol)
        self.connections: dict[int, TrackedConnection] = {}  # by descriptor
        self._of: Counter[str] = Counter()
        self._most = connection_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most)
        self._proxies = tuple(proxies)
        self._turned_away = 0
        self._logged_s = -LOG_EVERY_S
        self._paused_until_s = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises `ConnectionAbortedError` for one that there is no room for, `OSError` once where descriptors are used up, and
        `BlockingIOError` for a while after it.
        """
        if time.monotonic() < self._paused_until_s:
            raise BlockingIOError
        try:
            accepted, (host, *_) = super().accept()
        except OSError as error:
            if error.errno in USED_UP:
                self._paused_until_s = time.monotonic() + PAUSE_S
            raise
        connection = TrackedConnection(self, accepted, client_of(host))
        per_client = self._most if self._proxies and any(ip_address(host) in network for network in self._proxies) else self._most // 2
        if len(self.connections) >= self._most or self._of[connection.address] >= per_client:
            self._make_room(connection, per_client)
        self.connections[connection.fileno()] = connection
        self._of[connection.address] += 1
        return connection, (host, *_)

    def forget(self, connection: TrackedConnection) -> None:
        """Stops counting a connection."""
        if self.connections.get(connection.fileno()) is connection:
            del self.connections[connection.fileno()]
            self._of[connection.address] -= 1
            if not self._of[connection.address]:
                del self._of[connection.address]

    async def sweep(self) -> None:
        """Drops overdue connections, and logs how many were dropped for room."""
        now_s = time.monotonic()
        for connection in overdue(self.connections.values(), now_s):
            connection.drop()
        if self._turned_away and now_s - self._logged_s >= LOG_EVERY_S:
            log.warning("connections_turned_away", number=self._turned_away, room=self._most)
            self._turned_away, self._logged_s = 0, now_s

    def _make_room(self, newest: TrackedConnection, per_client: int) -> None:
        self._turned_away += 1
        gone = connection_to_drop(self.connections.values(), newest, self._most, per_client)
        if gone is newest:
            newest.close()
            raise ConnectionAbortedError("no room for another connection")
        if gone is not None:
            gone.drop()
