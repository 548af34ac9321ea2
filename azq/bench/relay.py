"""A network between a host and its brokers, in a process of its own: connections whose bytes arrive later, and some much later.

It stands for netem where the kernel has none. Bytes keep their order and their rate is not limited. A lost packet is what TCP makes of
it: everything behind it waits until it is sent again, `AGAIN_S` later, the least that Linux waits.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from azq.bench.rig import changed, child, say
from azq.config import Config

AGAIN_S = 0.2
READ_BYTES = 1 << 18
PACKET_BYTES = 1448


@dataclass(eq=False)
class RelayWay:
    """What flows from one socket to another; bytes wait for their time in `waiting`, then for the other side's buffer."""

    source: socket.socket
    sink: socket.socket
    delay_s: float
    loss: float
    waiting: deque[tuple[float, memoryview]] = field(default_factory=deque)

    def take(self, now_s: float, dice: random.Random) -> bool:
        """Whether the source still says something."""
        try:
            said = self.source.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        lost = self.loss and dice.random() < 1.0 - (1.0 - self.loss) ** -(-len(said) // PACKET_BYTES)
        due_s = now_s + self.delay_s + (AGAIN_S if lost else 0.0)
        self.waiting.append((max(due_s, self.waiting[-1][0]) if self.waiting else due_s, memoryview(said)))
        return bool(said)

    def give(self, now_s: float) -> None:
        """Passes on what is due, as far as the other side takes it."""
        while self.waiting and self.waiting[0][0] <= now_s:
            due_s, rest = self.waiting.popleft()
            try:
                sent = self.sink.send(rest)
            except BlockingIOError:
                sent = 0
            if sent < len(rest):
                self.waiting.appendleft((due_s, rest[sent:]))
                return


@contextlib.contextmanager
def over_a_network(config: Config, rtt_ms: float, loss: float) -> Iterator[Config]:
    """The same settings with addresses of brokers that are so far away; those given are unix sockets."""
    urls = [urlsplit(url) for url in (config.broker.control_url, *config.broker.data_planes)]
    process = child(relay, servers=[url.path for url in urls], rtt_ms=rtt_ms, loss=loss)
    try:
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        control, *data = [f"redis://{url.netloc}127.0.0.1:{port}/0" for url, port in zip(urls, ports, strict=True)]
        yield changed(config, broker={"control_url": control, "data_url": "", "data_urls": tuple(data)})
    finally:
        process.kill()
        process.communicate()


def relay(servers: Sequence[str], rtt_ms: float, loss: float) -> None:
    """Says the ports that stand for these unix sockets, then passes on until it is ended; a packet is lost with probability `loss`."""
    doors = {socket.create_server(("127.0.0.1", 0)): server for server in servers}
    say([door.getsockname()[1] for door in doors])
    ways: dict[socket.socket, RelayWay] = {}
    dice = random.Random(0)
    while True:
        now_s = time.monotonic()
        next_s = {way: way.waiting[0][0] for way in ways.values() if way.waiting}
        full = [way.sink for way, due_s in next_s.items() if due_s <= now_s]
        wait_s = min((due_s - now_s for due_s in next_s.values() if due_s > now_s), default=None)
        readable, _, _ = select.select([*doors, *ways], full, [], wait_s)
        now_s = time.monotonic()
        for ready in readable:
            if ready in doors:
                ways |= _opened(ready, doors[ready], rtt_ms / 2e3, loss)
            elif ready in ways and not ways[ready].take(now_s, dice):
                _close(ways, ways[ready])
        for way in list(ways.values()):
            try:
                way.give(now_s)
            except OSError:
                _close(ways, way)


def _opened(door: socket.socket, server: str, delay_s: float, loss: float) -> dict[socket.socket, RelayWay]:
    caller, _ = door.accept()
    called = socket.socket(socket.AF_UNIX)
    called.connect(server)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for end in (caller, called):
        end.setblocking(False)
    return {caller: RelayWay(caller, called, delay_s, loss), called: RelayWay(called, caller, delay_s, loss)}


def _close(ways: dict[socket.socket, RelayWay], way: RelayWay) -> None:
    """Both directions: brokers and their clients hang up together."""
    for end in (way.source, way.sink):
        ways.pop(end, None)
        end.close()
