"""Bytes of one connection through the TLS front, both ways, never waiting. A side is read only once the other has taken everything."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
from collections.abc import Iterator, Set

BUFFER_BYTES = 256 * 1024
TURN_BYTES = 4 * BUFFER_BYTES  # of one connection before the others have their turn
_RECORD_BYTES = 16 * 1024  # the most that TLS gives at once
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_BUFFER = memoryview(bytearray(BUFFER_BYTES))  # of the one thread there is; empty between two calls


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


class Pipe:
    """A client and, once its handshake is through, its own connection to the server."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.watched: dict[socket.socket, int] = {}  # what the selector was told
        self._waits = _READ  # of the handshake
        self._up: Flow
        self._down: Flow

    @property
    def known(self) -> bool:
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

    def shake_hands(self) -> bool:
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
