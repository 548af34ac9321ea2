"""HTTP from a process that does other things too: uvicorn in a thread, behind a door that bounds connections and their patience.

Connections share the process's descriptors with those of brokers, without which nothing ticks. So there is a bound on all and on those of
one address, counted from the moment of acceptance (also before any handshake). A newcomer beyond it takes the place of whoever has taken
longest to say what it wants; one who is being answered, or speaks over a WebSocket, is never turned away.
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


MOST = 2048
KEPT_BACK = 256  # descriptors for brokers, files and what is being accepted
FEWEST = 16
BACKLOG = 128  # connections that wait to be accepted, and that are accepted at once
HEADERS_S = 10.0
BODY_S = 30.0
SAY_EVERY_S = 60.0
PAUSE_S = 0.5  # without accepting, where descriptors or memory are used up; less than asyncio's own second
USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ONE_HOLDER = 64  # bits of an IPv6 address that one customer of a network has

Network = IPv4Network | IPv6Network


def holder_of(address: str) -> str:
    """Who has an address, as far as it tells: IPv6 is dealt out by 64 bits, and IPv4 in the form of IPv6 is IPv4."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((parsed, ONE_HOLDER), strict=False))


class Phase(Enum):
    """What a connection does: the client asks, sends a body, or waits for its answer."""

    HEADERS = HEADERS_S
    BODY = BODY_S
    ANSWER = float("inf")


class Guest(Protocol):
    """What deciding about a connection needs."""

    address: str
    phase: Phase
    since_s: float  # when the phase began


GuestT = TypeVar("GuestT", bound=Guest)


def most_guests(descriptors: int, wanted: int = MOST) -> int:
    """How many connections a process with so many descriptors can bear, at most those that are wanted; -1: without limit."""
    return wanted if descriptors < 0 else max(FEWEST, min(wanted, descriptors - KEPT_BACK))


def whom_to_turn_away(guests: Collection[GuestT], newcomer: GuestT, most: int, each: int) -> GuestT | None:
    """Who goes so that a newcomer can stay: nobody while there is room, the newcomer itself where all others are being answered.

    One address has room for `each`; where that is used up, one of its own goes.
    """
    of_address = [guest for guest in guests if guest.address == newcomer.address]
    crowd = of_address if len(of_address) >= each else guests if len(guests) >= most else []
    if not crowd:
        return None
    return min((guest for guest in crowd if guest.phase is not Phase.ANSWER), key=lambda guest: guest.since_s, default=newcomer)


def overdue(guests: Collection[GuestT], now_s: float) -> list[GuestT]:
    """Those who take longer to ask than anybody needs."""
    return [guest for guest in guests if now_s - guest.since_s > guest.phase.value]


class Visitor(socket.socket):
    """An accepted connection; the door knows of it until it is closed or turned away."""

    def __init__(self, door: Door, accepted: socket.socket, address: str) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._door = door
        self.address = address
        self.phase = Phase.HEADERS
        self.since_s = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """Notes what the connection does now; the same as before changes nothing, however many bytes came."""
        if phase is not self.phase:
            self.phase, self.since_s = phase, time.monotonic()

    def turn_away(self) -> None:
        """Ends the conversation; whoever reads from it sees its end and closes it."""
        self._door.forget(self)
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.forget(self)
        super().close()


class Door(socket.socket):
    """A listening socket that knows who came in through it; one address has half of the room, a proxy's all of it."""

    def __init__(self, family: int, kind: int, protocol: int, most: int = MOST, proxies: Collection[Network] = ()) -> None:
        super().__init__(family, kind, protocol)
        self.visitors: dict[int, Visitor] = {}  # by descriptor
        self._of: Counter[str] = Counter()
        self._most = most_guests(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most)
        self._proxies = tuple(proxies)
        self._turned_away = 0
        self._said_s = -SAY_EVERY_S
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
        visitor = Visitor(self, accepted, holder_of(host))
        each = self._most if self._proxies and any(ip_address(host) in network for network in self._proxies) else self._most // 2
        if len(self.visitors) >= self._most or self._of[visitor.address] >= each:
            self._make_room(visitor, each)
        self.visitors[visitor.fileno()] = visitor
        self._of[visitor.address] += 1
        return visitor, (host, *_)

    def forget(self, visitor: Visitor) -> None:
        """A visitor's place is free."""
        if self.visitors.get(visitor.fileno()) is visitor:
            del self.visitors[visitor.fileno()]
            self._of[visitor.address] -= 1
            if not self._of[visitor.address]:
                del self._of[visitor.address]

    async def sweep(self) -> None:
        """Turns away those who take too long to ask, and says how many had to go."""
        now_s = time.monotonic()
        for visitor in overdue(self.visitors.values(), now_s):
            visitor.turn_away()
        if self._turned_away and now_s - self._said_s >= SAY_EVERY_S:
            log.warning("connections_turned_away", number=self._turned_away, room=self._most)
            self._turned_away, self._said_s = 0, now_s

    def _make_room(self, newcomer: Visitor, each: int) -> None:
        self._turned_away += 1
        gone = whom_to_turn_away(self.visitors.values(), newcomer, self._most, each)
        if gone is newcomer:
            newcomer.close()
            raise ConnectionAbortedError("no room for another connection")
        if gone is not None:
            gone.turn_away()
