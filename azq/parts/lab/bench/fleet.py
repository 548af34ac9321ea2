"""Self-play whose brokers are a network away: its share of what the bare network would do, by round trip time.

Self-play, brokers and inference worker are separate hosts to each other: every byte between two of them takes half a round trip, by a
relay that stands for netem where the kernel has none. Bytes keep their order and their rate is not limited. A lost packet is what TCP makes
of it: everything behind it waits until it is sent again, `AGAIN_S` later, the least that Linux waits. The neural network is a clock, so
that two cores are enough to tell what the way costs; it is as slow as these can keep it busy without any way.
"""

from __future__ import annotations

import contextlib
import math
import random
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from azq.config import Config, RunSections
from azq.errors import ConfigError, EvaluationTimeout
from azq.parts.lab.bench.clock import NETWORK, seconds_of, serve
from azq.parts.lab.bench.rig import PartProcess, Rig, answer_line, changed, command_of, observations, percentile, rig
from azq.parts.lab.bench.selfplay import readings_of

LEAVES = 1024  # of a request
GROUPS = 2  # of games, a request each: azq's default
SIMULATIONS = 64
PROBES = 60
PATIENCE_S = 30.0
ENOUGH = 0.85  # of the bare network, below which more requests in flight are tried


def bench_fleet(config: Config, *, seconds: float, game: str, network_clock: str, rtt: Sequence[float], loss: float) -> dict[str, Any]:
    """For each round trip time in ms the share of the bare network, first with two groups of games, then with as many as it needs.

    `loss` is the share of packets that are lost. Raises `ConfigError` for a time or a share that is none.
    """
    clock_s = seconds_of(network_clock)
    if not 0.0 <= loss < 1.0 or min(rtt) < 0.0:
        raise ConfigError(f"--loss {loss:g} must be below 1 and --rtt {min(rtt):g} at least 0")
    config = changed(config, worker={"evaluator": "stream"})  # the brokers are what is far away
    rows = []
    for rtt_ms in rtt:
        row = _row(config, game, clock_s, (rtt_ms, loss, GROUPS), seconds)
        rows.append(row)
        needed = in_flight(clock_s, 1e-3 * row["round_trip_p50_ms"] - clock_s, row["turn_ms"] / 1e3)
        if row["share_of_bare"] < ENOUGH and needed > GROUPS:
            rows.append(_row(config, game, clock_s, (rtt_ms, loss, needed), seconds))
    return {"game": game, "network_clock_ms": clock_s * 1e3, "leaves_per_request": LEAVES, "rows": rows}


def in_flight(clock_s: float, way_s: float, turn_s: float) -> int:
    """Requests that keep a device busy which takes one in `clock_s`; each is besides `way_s` on its way and `turn_s` at its client."""
    return math.ceil((clock_s + max(0.0, way_s) + turn_s) / clock_s)


def _row(config: Config, game: str, clock_s: float, way: tuple[float, float, int], seconds: float) -> dict[str, Any]:
    rtt_ms, loss, groups = way
    selfplay = {"games_in_flight": groups * LEAVES, "groups": groups, "random_opening_plies": 12, "evaluator": "stream"}
    search = {"num_simulations": SIMULATIONS}
    sections = changed(config.run_sections(), run={"game": game}, search=search, network=NETWORK, selfplay=selfplay)
    command = command_of(serve, clock_s=clock_s, leaves=LEAVES)
    with rig(config, sections, inference=1, command=command, via=partial(over_a_network, rtt_ms=rtt_ms, loss=loss)) as machine:
        trips_ms = round_trips_ms(machine, sections)
        before, after, _ = readings_of(machine, "stream", seconds)
    wall_s, own_s = after.wall_s - before.wall_s, after.own_s - before.own_s
    evaluations, requests = (getattr(after.progress, name) - getattr(before.progress, name) for name in ("evaluations", "requests"))
    return {
        "rtt_ms": rtt_ms,
        "loss": loss,
        "groups": groups,
        "round_trip_p50_ms": round(percentile(trips_ms, 0.5), 2),
        "round_trip_p99_ms": round(percentile(trips_ms, 0.99), 2),
        "turn_ms": round(1e3 * own_s / max(1, requests), 2),
        "evaluations_per_s": round(evaluations / wall_s),
        "share_of_bare": round(requests * clock_s / wall_s, 3),  # at the same size of a request, which is a little below LEAVES
        "cpu_us_per_evaluation": round(1e6 * (after.cpu_s - before.cpu_s) / max(1, evaluations), 2),
    }


def round_trips_ms(machine: Rig, sections: RunSections) -> list[float]:
    """Of one request after another, the clock's time in it."""
    packed, legal = observations(sections, LEAVES)
    trips_ms = []
    with machine.client() as client:
        for _ in range(PROBES):
            begun_s = time.perf_counter()
            if client.result(client.submit(packed, legal=legal), timeout_s=PATIENCE_S) is None:
                raise EvaluationTimeout(f"no answer within {PATIENCE_S:.0f} s")
            trips_ms.append(1e3 * (time.perf_counter() - begun_s))
    return trips_ms[PROBES // 6 :]


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
            data = self.source.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        lost = self.loss and dice.random() < 1.0 - (1.0 - self.loss) ** -(-len(data) // PACKET_BYTES)
        due_s = now_s + self.delay_s + (AGAIN_S if lost else 0.0)
        self.waiting.append((max(due_s, self.waiting[-1][0]) if self.waiting else due_s, memoryview(data)))
        return bool(data)

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
    with PartProcess(relay, servers=[url.path for url in urls], rtt_ms=rtt_ms, loss=loss) as process:
        ports = process.read(PATIENCE_S)
        control, *data = [f"redis://{url.netloc}127.0.0.1:{port}/0" for url, port in zip(urls, ports, strict=True)]
        yield changed(config, broker={"control_url": control, "data_url": "", "data_urls": tuple(data)})


def relay(servers: Sequence[str], rtt_ms: float, loss: float) -> None:
    """Says the ports that stand for these unix sockets, then passes on until it is ended; a packet is lost with probability `loss`."""
    doors = {socket.create_server(("127.0.0.1", 0)): server for server in servers}
    answer_line([door.getsockname()[1] for door in doors])
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
