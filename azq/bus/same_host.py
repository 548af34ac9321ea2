"""Evaluation requests between processes of one host: the same frames over a unix socket, without a broker between them.

A connection is one client of one run: first the names of its stream and its reply list, then frames, each behind its length. Requests
need no claims: a client whose inference worker is gone sees the connection end and asks again over the broker.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from azq import logs
from azq.bus.base import AskingBus, Entry, RequestBus
from azq.errors import BrokerUnavailable
from azq.files import private_folder, socket_folder
from azq.wire.codec import MAX_FRAME_BYTES

FOLDER, LONGEST_NAME = ".inference", "4194304.sock"  # of sockets, below the home folder, where no run has such a name
BUFFER_BYTES = 4 * 1024 * 1024  # that the kernel is asked to hold for a connection; it may give less
LONGEST_QUEUE_BYTES = 16 * MAX_FRAME_BYTES  # of replies that a client does not read, before it is disconnected
SEND_S = 5.0  # a worker that takes nothing for so long is lost
CONNECT_EVERY_S = 1.0
_LENGTH = struct.Struct("<I")


class PeerLost(BrokerUnavailable):
    """An inference worker of this host closed its connection; what it was asked has to be asked again."""


class _Connection:
    """Frames over one socket; reading never blocks."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.socket = connection
        self._head, self._got = bytearray(_LENGTH.size), 0
        self._body: bytearray | None = None

    def frames(self) -> Iterator[bytes]:
        """The frames that have arrived whole. Raises `OSError` where the other side is gone or sends what is too long."""
        while True:
            target = self._head if self._body is None else self._body
            try:
                count = self.socket.recv_into(memoryview(target)[self._got :])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionResetError("closed")
            self._got += count
            if self._got < len(target):
                continue
            self._got = 0
            if self._body is not None:
                self._body = None
                yield bytes(target)
            elif not 0 < (length := _LENGTH.unpack(target)[0]) <= MAX_FRAME_BYTES:
                raise ConnectionResetError(f"a frame of {length} bytes")
            else:
                self._body = bytearray(length)


class _Client(_Connection):
    """A client as its worker has it: what it asked, and what of its replies the kernel has not taken yet."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.stream = self.replies = ""
        self.queue: list[memoryview] = []
        self.lock = threading.Lock()

    def send(self, frame: bytes = b"") -> bool:
        """Hands a frame to the kernel as far as it takes it, and keeps the rest; False while a rest is kept. Raises `OSError`."""
        with self.lock:
            if frame:
                self.queue += (memoryview(_LENGTH.pack(len(frame))), memoryview(frame))
            try:
                while self.queue:
                    self.queue = _behind(self.queue, self.socket.sendmsg(self.queue[:2]))
            except BlockingIOError:
                if sum(map(len, self.queue)) > LONGEST_QUEUE_BYTES:
                    raise ConnectionResetError("replies are not read") from None
            return not self.queue


class HostRequests(RequestBus):
    """The requests of this host's processes, as an inference worker reads and answers them: read by one thread, answered by any."""

    def __init__(self, home: Path, pid: int = 0) -> None:
        folder = socket_folder(home / FOLDER, LONGEST_NAME)
        private_folder(folder)
        _remove_stale(folder)
        self.path = folder / f"{pid or os.getpid()}.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.setblocking(False)
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._clients: dict[str, _Client] = {}  # by reply list
        self._ready = deque[Entry]()
        self._number = 0

    @property
    def connected(self) -> bool:
        """Whether any client of this host is connected."""
        return bool(self._clients)

    def has(self, replies: str) -> bool:
        """Whether the client of this reply list is connected."""
        return replies in self._clients

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: float) -> list[Entry]:
        """Up to `count` new requests of these streams; those of others wait until their stream is read."""
        deadline_s, wait_s = time.monotonic() + block_ms / 1e3, 0.0
        while True:
            for key, events in self._selector.select(wait_s):
                self._serve(key.fileobj, key.data, events)
            taken = self._taken(streams, count)
            wait_s = deadline_s - time.monotonic()
            if taken or wait_s <= 0.0:
                return taken

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        """Nothing: a client sees its connection end and sends again."""
        return []

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        """Nothing: a request is this worker's once it was read."""
        return

    def dead_letter(self, entry: Entry, reason: str) -> None:
        """Nothing: `ShardedBus` keeps them on a broker."""
        return

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        """Sends replies to their clients; a client that is gone asks again elsewhere."""
        for name, frame in replies:
            if (client := self._clients.get(name)) is None:
                continue
            try:
                done = client.send(frame)
            except OSError:
                with contextlib.suppress(OSError):
                    client.socket.shutdown(socket.SHUT_RDWR)  # the reading thread forgets it
                continue
            if not done:
                with contextlib.suppress(BlockingIOError):
                    self._waker.send(b"w")

    def close(self) -> None:
        """Closes all connections and takes the socket's file away."""
        self.path.unlink(missing_ok=True)
        for key in tuple((self._selector.get_map() or {}).values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._waker.close()
        self._clients.clear()
        self._selector.close()

    def _taken(self, streams: Sequence[str], count: int) -> list[Entry]:
        taken, left = list[Entry](), deque[Entry]()
        while self._ready:
            entry = self._ready.popleft()
            (taken if entry.stream in streams and len(taken) < count else left).append(entry)
        self._ready = left
        return taken

    def _serve(self, source: object, client: _Client | None, events: int) -> None:
        if source is self._listener:
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                self._selector.register(connection, selectors.EVENT_READ, _Client(connection))
        elif client is None:
            self._woken.recv(4096)
            for waiting in self._clients.values():
                if waiting.queue:
                    self._selector.modify(waiting.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, waiting)
        else:
            try:
                if events & selectors.EVENT_WRITE and client.send():
                    self._selector.modify(client.socket, selectors.EVENT_READ, client)
                for frame in client.frames():
                    self._take(client, frame)
            except (OSError, ValueError):
                self._forget(client)

    def _take(self, client: _Client, frame: bytes) -> None:
        if not client.stream:
            client.stream, client.replies = frame.decode("utf-8").split("\n")
            self._clients[client.replies] = client
            return
        self._number += 1
        self._ready.append(Entry(client.stream, str(self._number), frame))

    def _forget(self, client: _Client) -> None:
        self._selector.unregister(client.socket)
        client.socket.close()
        if self._clients.get(client.replies) is client:
            del self._clients[client.replies]


def _remove_stale(folder: Path) -> None:
    """Removes sockets without a listener."""
    for path in folder.glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(SEND_S)
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)


class HostFirstBus(AskingBus):
    """A client's side: requests go to this host's inference workers while there are any, else over the broker. Used by one thread.

    Of several workers the one that has the fewest of this client's requests is asked.
    """

    def __init__(self, broker: AskingBus, stream: str, replies: str, home: Path) -> None:
        self._broker = broker
        self._names = f"{stream}\n{replies}".encode()
        self._folder = socket_folder(home / FOLDER, LONGEST_NAME)
        self._peers: dict[_Connection, int] = {}  # and the requests that it has not answered
        self._over_broker = 0
        self._connect_at_s = 0.0
        self._poll = selectors.DefaultSelector()

    def post(self, stream: str, frame: bytes, *, max_length: int | None = None) -> None:
        """Sends a request. Raises `PeerLost`, `BrokerError`."""
        if not self._peers and time.monotonic() >= self._connect_at_s:
            self._connect()
        if not self._peers:
            self._broker.post(stream, frame, max_length=max_length)
            self._over_broker += 1
            return
        peer = min(self._peers, key=self._peers.__getitem__)
        with self._lost_with(peer):
            _send(peer.socket, frame)
        self._peers[peer] += 1

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        """Waits for at least one reply; [] after `timeout_s`. Raises `PeerLost`, `BrokerError`."""
        if not self._peers:
            frames = self._broker.take_replies(key, timeout_s=timeout_s, count=count)
            self._over_broker = max(0, self._over_broker - len(frames))
            return frames
        if self._over_broker:  # asked before a worker of this host was there
            frames = self._broker.take_replies(key, timeout_s=0.0, count=count)
            self._over_broker -= len(frames)
            if frames:
                return frames
            timeout_s = min(timeout_s, 0.005)
        arrived_frames: list[bytes] = []
        for ready, _ in self._poll.select(timeout_s):
            peer: _Connection = ready.data
            with self._lost_with(peer):
                arrived = list(peer.frames())
            self._peers[peer] = max(0, self._peers[peer] - len(arrived))
            arrived_frames += arrived
        return arrived_frames

    def delete(self, *names: str) -> None:
        """As the broker's."""
        self._broker.delete(*names)

    def close(self) -> None:
        """Closes all connections."""
        for peer in tuple(self._peers):
            self._drop(peer)
        self._poll.close()
        self._broker.close()

    def _connect(self) -> None:
        self._connect_at_s = time.monotonic() + CONNECT_EVERY_S
        for path in self._folder.glob("*.sock"):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(SEND_S)  # one that hangs does not accept
            try:
                connection.connect(str(path))
                peer = _Connection(connection)
                _send(connection, self._names)
            except OSError:
                connection.close()
                continue
            self._poll.register(connection, selectors.EVENT_READ, peer)
            self._peers[peer] = 0

    @contextlib.contextmanager
    def _lost_with(self, peer: _Connection) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._drop(peer)
            logs.get(__name__).info("host_worker_lost", reason=str(error))
            raise PeerLost(f"an inference worker of this host is gone: {error}") from None

    def _drop(self, peer: _Connection) -> None:
        self._poll.unregister(peer.socket)
        peer.socket.close()
        del self._peers[peer]


def _send(connection: socket.socket, frame: bytes) -> None:
    """Sends a whole frame; raises `OSError`, also where there is no room for it for `SEND_S`."""
    parts = [memoryview(_LENGTH.pack(len(frame))), memoryview(frame)]
    while parts:
        try:
            parts = _behind(parts, connection.sendmsg(parts))
        except BlockingIOError:
            room = select.poll()
            room.register(connection, select.POLLOUT)
            if not room.poll(1e3 * SEND_S):
                raise TimeoutError("it takes no requests") from None


def _behind(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of parts after so many bytes."""
    while parts and sent >= len(parts[0]):
        sent -= len(parts[0])
        parts = parts[1:]
    return [parts[0][sent:], *parts[1:]] if parts else []
