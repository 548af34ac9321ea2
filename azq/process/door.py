"""The connections of a process that serves HTTP: how many there may be, how long one may take to ask, and who goes when there are too many.

They share the process's descriptors with the brokers' connections, without which nothing ticks. So there is a bound on all and on those of
one address, counted from the moment of acceptance (also before any handshake). A newcomer beyond it takes the place of whoever has taken
longest to say what it wants; one who is being answered, or speaks over a WebSocket, is never turned away.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import time
from collections import Counter
from collections.abc import Collection
from enum import Enum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Protocol, TypeVar

from azq import logs

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

log = logs.get(__name__)


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
