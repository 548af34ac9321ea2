"""The TLS proxy of an embedded broker: a process that takes TLS from other machines and passes it to the server's unix socket.

One thread, one selector, no waiting: a side is read only once the other has taken everything, so nothing else is buffered. asyncio's
streams with TLS took a quarter to two fifths more CPU for each message, its protocols as much for large messages and more for small
ones, and 256 KiB a client.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from azq import logs
from azq.errors import BrokerUnavailable, ConfigError
from azq.wire.connect import keepalive_options

MAX_CLIENTS = 900  # of the 1,000 that the server takes: the rest is for processes of this host
LOGIN_S = 10.0  # within which a client has to complete the handshake and show a password
TURN_S = 1.0
HANDSHAKE = 0x16  # the first byte of every TLS connection
PLAINTEXT = b"-ERR this broker speaks TLS only: use a rediss:// address (azq join-token on the first machine prints it)\r\n"
BUFFER_BYTES = 256 * 1024
TURN_BYTES = 4 * BUFFER_BYTES  # of one connection before the others have their turn
_RECORD_BYTES = 16 * 1024  # the most that TLS gives at once
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_BUFFER = memoryview(bytearray(BUFFER_BYTES))  # of the one thread there is; empty between two calls

log = logs.get(__name__)


class Flow:
    """One direction. `left`: read and not yet taken; `ended`: nothing more comes."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.left = b""
        self.ended = False
        self.first = b""  # the very first byte
        self.source_waits = _READ  # what the source waits for: TLS may have to write in order to read, and the reverse
        self.sink_waits = _WRITE

    @property
    def done(self) -> bool:
        """Nothing more comes, and all that came was taken."""
        return self.ended and not self.left

    def move(self) -> None:
        """Moves what can be moved now, at most a turn's bytes."""
        moved = 0
        if self.left:
            self.left = self.left[self._send(memoryview(self.left)) :]
        while not self.left and not self.ended and moved < TURN_BYTES:
            count = self._fill()
            if not count:
                break
            self.first = self.first or bytes(_BUFFER[:1])
            moved += count
            if (sent := self._send(_BUFFER[:count])) < count:
                self.left = bytes(_BUFFER[sent:count])
            if count < _RECORD_BYTES and not pending(self.source):
                break  # the socket is empty, most likely; it tells when it is not

    def _fill(self) -> int:
        """Bytes that were read into the buffer: several records of TLS, so that the sink is called once for them."""
        count = 0
        while count < BUFFER_BYTES:
            try:
                got = self.source.recv_into(_BUFFER[count:])
            except (BlockingIOError, ssl.SSLWantReadError):
                self.source_waits = _READ
                break
            except ssl.SSLWantWriteError:
                self.source_waits = _WRITE
                break
            self.source_waits = _READ
            if not got:
                self.ended = True
                break
            count += got
            if got < _RECORD_BYTES and not pending(self.source):
                break
        return count

    def _send(self, data: memoryview) -> int:
        """How many bytes the sink took."""
        sent = 0
        while sent < len(data):
            try:
                sent += self.sink.send(data[sent:])
            except (BlockingIOError, ssl.SSLWantWriteError):
                self.sink_waits = _WRITE
                break
            except ssl.SSLWantReadError:
                self.sink_waits = _READ
                break
        return sent


class ProxiedConnection:
    """A client and, once its handshake is through, its own connection to the server."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.watched: dict[socket.socket, int] = {}  # for which events the selector watches each
        self._waits = _READ  # of the handshake
        self._up: Flow
        self._down: Flow

    @property
    def authenticated(self) -> bool:
        """Whether the server has answered this client with anything but an error."""
        return self.server is not None and self._down.first not in (b"", b"-")

    @property
    def over(self) -> bool:
        """Whether the server is done with this client, or its very first answer was an error: then there was no password."""
        return self._down.done or (self._down.first == b"-" and not self._down.left)

    @property
    def eager(self) -> bool:
        """Whether there is more to move of which no socket tells."""
        return not self._up.left and not self._up.ended and bool(pending(self.client))

    def do_handshake(self) -> bool:
        """Whether the handshake is through."""
        assert isinstance(self.client, ssl.SSLSocket)
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            self._waits = _READ
        except ssl.SSLWantWriteError:
            self._waits = _WRITE
        else:
            return True
        return False

    def attach(self, server: socket.socket) -> None:
        """From here on bytes flow."""
        self.server = server
        self._up, self._down = Flow(self.client, server), Flow(server, self.client)

    def move(self, ready: Set[object]) -> None:
        """Moves what the sockets that are ready allow. Raises OSError where one side is gone."""
        assert self.server is not None
        open_before = not self._up.done
        for flow in (self._up, self._down):
            if (flow.sink if flow.left else flow.source) in ready:
                flow.move()
        if self._up.done and open_before:
            self.server.shutdown(socket.SHUT_WR)  # the client said its last; what it is still owed comes

    def interests(self) -> Iterator[tuple[socket.socket, int]]:
        """What each side is watched for."""
        if self.server is None:
            yield self.client, self._waits
            return
        up, down = self._up, self._down
        yield self.client, _reads(up) | _writes(down)
        yield self.server, _reads(down) | _writes(up)

    def close(self) -> None:
        if isinstance(self.client, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):
                self.client.unwrap()  # says goodbye, and does not wait for the other's
        for end in (self.client, self.server):
            if end is not None:
                end.close()


def pending(end: socket.socket) -> int:
    """Bytes that were decrypted and not read."""
    return end.pending() if isinstance(end, ssl.SSLSocket) else 0


def _reads(flow: Flow) -> int:
    return 0 if flow.left or flow.ended else flow.source_waits


def _writes(flow: Flow) -> int:
    return flow.sink_waits if flow.left else 0


class TlsProxy:
    """Serves one listening socket. `turn` does what is to be done now; `close` ends every connection."""

    def __init__(self, listener: socket.socket, server: Path, certificate: Path, key: Path, *, max_clients: int = MAX_CLIENTS) -> None:
        self._listener = listener
        self._server = str(server)
        self._context = server_context(certificate, key)
        self._max_clients = max_clients
        self._selector = selectors.DefaultSelector()
        self._connections: set[ProxiedConnection] = set()
        self._newcomers: dict[ProxiedConnection, float] = {}  # since when, oldest first
        self._eager: set[ProxiedConnection] = set()  # hold decrypted bytes of which no socket tells
        self._plaintext = 0
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    @property
    def clients(self) -> int:
        return len(self._connections)

    def turn(self, wait_s: float = TURN_S) -> None:
        """Waits for something to do, at most so long, and does it."""
        events = self._selector.select(0.0 if self._eager else wait_s)
        ready: dict[ProxiedConnection, set[object]] = {connection: {connection.client} for connection in self._eager}
        self._eager = set()
        for key, _ in events:
            if key.data is None:
                self._accept()
            else:
                ready.setdefault(key.data, set()).add(key.fileobj)
        for connection, ends in ready.items():
            self._advance(connection, ends)
        self._drop_overdue()

    def close(self) -> None:
        for connection in tuple(self._connections):
            self._drop(connection)
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
        if len(self._connections) >= self._max_clients:
            if not self._newcomers:
                client.close()
                return
            self._drop(next(iter(self._newcomers)))
        connection = ProxiedConnection(client)
        self._connections.add(connection)
        self._newcomers[connection] = time.monotonic()
        self._watch(connection)

    def _advance(self, connection: ProxiedConnection, ready: Set[object]) -> None:
        """Moves what can be moved; a connection that has nothing more to say, or fails, is dropped."""
        if connection not in self._connections:
            return
        try:
            if connection.server is None:
                if not self._open(connection):
                    self._watch(connection)
                    return
                ready = {connection.client}  # what came with the end of the handshake
            connection.move(ready)
        except OSError:  # either side is gone, or what came is no TLS
            self._drop(connection)
            return
        if connection.authenticated:
            self._newcomers.pop(connection, None)
        if connection.over:
            self._drop(connection)
            return
        if connection.eager:
            self._eager.add(connection)
        self._watch(connection)

    def _open(self, connection: ProxiedConnection) -> bool:
        """Brings a new client to the server, once its handshake is through."""
        if not isinstance(connection.client, ssl.SSLSocket):
            first = connection.client.recv(1, socket.MSG_PEEK)
            if first[0:1] != bytes([HANDSHAKE]):
                self._refuse_plaintext(connection.client, first)
            self._selector.unregister(connection.client)
            connection.watched.clear()
            connection.client = self._context.wrap_socket(connection.client, server_side=True, do_handshake_on_connect=False)
        if not connection.do_handshake():
            return False
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        connection.attach(server)
        server.connect(self._server)
        return True

    def _refuse_plaintext(self, client: socket.socket, first: bytes) -> None:
        if first:
            client.recv(4096)  # unread bytes would make the end a reset, which overtakes the message
            self._plaintext += 1
            if self._plaintext & (self._plaintext - 1) == 0:  # the 1st, 2nd, 4th, ...
                log.warning("plaintext_refused", client=client.getpeername()[0], clients=self._plaintext)
            client.send(PLAINTEXT)
        raise ConnectionAbortedError

    def _watch(self, connection: ProxiedConnection) -> None:
        """Tells the selector what each side waits for."""
        for end, events in connection.interests():
            before = connection.watched.get(end, 0)
            if events == before:
                continue
            if not before:
                self._selector.register(end, events, connection)
            elif events:
                self._selector.modify(end, events, connection)
            else:
                self._selector.unregister(end)
            connection.watched[end] = events

    def _drop_overdue(self) -> None:
        """Drops those who have had their time and showed no password."""
        latest = time.monotonic() - LOGIN_S
        while self._newcomers:
            connection, since_s = next(iter(self._newcomers.items()))
            if since_s > latest:
                return
            self._drop(connection)

    def _drop(self, connection: ProxiedConnection) -> None:
        for end, events in connection.watched.items():
            if events:
                self._selector.unregister(end)
        connection.watched.clear()
        self._connections.discard(connection)
        self._newcomers.pop(connection, None)
        self._eager.discard(connection)
        connection.close()


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 with a host's certificate. Raises `ConfigError` naming the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # clients do not resume
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


def serve(proxy: TlsProxy, alive: Callable[[], object], stopped: Callable[[], bool]) -> None:
    """Serves until `stopped`; `alive` is called about every second."""
    reported_s = 0.0
    while not stopped():
        proxy.turn()
        if time.monotonic() - reported_s >= TURN_S:
            reported_s = time.monotonic()
            alive()
