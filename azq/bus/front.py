"""The TLS front of an embedded broker: a process that takes TLS from other machines and pipes it to the server's unix socket.

One thread, one selector. Nothing is kept but what one side has not yet taken, and the other is not read while there is any.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Set
from pathlib import Path

from azq import logs
from azq.bus.pipe import Pipe
from azq.errors import BrokerUnavailable, ConfigError
from azq.wire.connect import keepalive_options

MAX_CLIENTS = 900  # of the 1,000 that the server takes: the rest is for processes of this host
STRANGER_S = 10.0  # within which a client has to complete the handshake and show a password
TURN_S = 1.0
HANDSHAKE = 0x16  # the first byte of every TLS connection
PLAINTEXT = b"-ERR this broker speaks TLS only: use a rediss:// address (azq join-token on the first machine prints it)\r\n"

log = logs.get(__name__)


class Front:
    """Serves one listening socket. `turn` does what is to be done now; `close` ends every connection."""

    def __init__(self, listener: socket.socket, server: Path, certificate: Path, key: Path, *, max_clients: int = MAX_CLIENTS) -> None:
        self._listener = listener
        self._server = str(server)
        self._context = server_context(certificate, key)
        self._max_clients = max_clients
        self._selector = selectors.DefaultSelector()
        self._pipes: set[Pipe] = set()
        self._strangers: dict[Pipe, float] = {}  # since when, oldest first
        self._eager: set[Pipe] = set()  # hold decrypted bytes of which no socket tells
        self._plaintext = 0
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    @property
    def clients(self) -> int:
        return len(self._pipes)

    def turn(self, wait_s: float = TURN_S) -> None:
        """Waits for something to do, at most so long, and does it."""
        events = self._selector.select(0.0 if self._eager else wait_s)
        ready: dict[Pipe, set[object]] = {pipe: {pipe.client} for pipe in self._eager}
        self._eager = set()
        for key, _ in events:
            if key.data is None:
                self._accept()
            else:
                ready.setdefault(key.data, set()).add(key.fileobj)
        for pipe, ends in ready.items():
            self._advance(pipe, ends)
        self._turn_away()

    def close(self) -> None:
        for pipe in tuple(self._pipes):
            self._drop(pipe)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it is gone again, or descriptors are short: the next turn tries once more
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in keepalive_options().items():
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        if len(self._pipes) >= self._max_clients:
            if not self._strangers:
                client.close()
                return
            self._drop(next(iter(self._strangers)))
        pipe = Pipe(client)
        self._pipes.add(pipe)
        self._strangers[pipe] = time.monotonic()
        self._watch(pipe)

    def _advance(self, pipe: Pipe, ready: Set[object]) -> None:
        """Moves what can be moved; a connection that has nothing more to say, or fails, is dropped."""
        if pipe not in self._pipes:
            return
        try:
            if pipe.server is None:
                if not self._open(pipe):
                    self._watch(pipe)
                    return
                ready = {pipe.client}  # what came with the end of the handshake
            pipe.move(ready)
        except OSError:  # either side is gone, or what came is no TLS
            self._drop(pipe)
            return
        if pipe.known:
            self._strangers.pop(pipe, None)
        if pipe.over:
            self._drop(pipe)
            return
        if pipe.eager:
            self._eager.add(pipe)
        self._watch(pipe)

    def _open(self, pipe: Pipe) -> bool:
        """Brings a new client to the server, once its handshake is through."""
        if not isinstance(pipe.client, ssl.SSLSocket):
            first = pipe.client.recv(1, socket.MSG_PEEK)
            if first[0:1] != bytes([HANDSHAKE]):
                self._refuse_plaintext(pipe.client, first)
            self._selector.unregister(pipe.client)
            pipe.watched.clear()
            pipe.client = self._context.wrap_socket(pipe.client, server_side=True, do_handshake_on_connect=False)
        if not pipe.shake_hands():
            return False
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        pipe.attach(server)
        server.connect(self._server)
        return True

    def _refuse_plaintext(self, client: socket.socket, first: bytes) -> None:
        if first:
            client.recv(4096)  # bytes that nobody read would make the end a reset, which overtakes the words
            self._plaintext += 1
            if self._plaintext & (self._plaintext - 1) == 0:  # the 1st, 2nd, 4th, ...
                log.warning("plaintext_refused", client=client.getpeername()[0], clients=self._plaintext)
            client.send(PLAINTEXT)
        raise ConnectionAbortedError

    def _watch(self, pipe: Pipe) -> None:
        """Tells the selector what each side waits for."""
        for end, events in pipe.interests():
            before = pipe.watched.get(end, 0)
            if events == before:
                continue
            if not before:
                self._selector.register(end, events, pipe)
            elif events:
                self._selector.modify(end, events, pipe)
            else:
                self._selector.unregister(end)
            pipe.watched[end] = events

    def _turn_away(self) -> None:
        """Drops those who have had their time and showed no password."""
        latest = time.monotonic() - STRANGER_S
        while self._strangers:
            pipe, since_s = next(iter(self._strangers.items()))
            if since_s > latest:
                return
            self._drop(pipe)

    def _drop(self, pipe: Pipe) -> None:
        for end, events in pipe.watched.items():
            if events:
                self._selector.unregister(end)
        pipe.watched.clear()
        self._pipes.discard(pipe)
        self._strangers.pop(pipe, None)
        self._eager.discard(pipe)
        pipe.close()


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 with a host's certificate. Raises `ConfigError` naming the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # clients do not resume, so tickets would be bytes for nobody
    try:
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{certificate} and {key} cannot be used for TLS ({error}); delete both to have new ones made") from None
    return context


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `BrokerUnavailable` where the address is taken or not this machine's, which may pass."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=511)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise BrokerUnavailable(f"{host}:{port} cannot be listened on ({why}); stop what uses it, or name another address") from None


def serve(front: Front, alive: Callable[[], object], stopped: Callable[[], bool]) -> None:
    """Serves until `stopped`; `alive` is called about every second."""
    said_s = 0.0
    while not stopped():
        front.turn()
        if time.monotonic() - said_s >= TURN_S:
            said_s = time.monotonic()
            alive()
