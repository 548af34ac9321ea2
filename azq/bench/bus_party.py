"""One party of the data plane's load, a process of its own: a client that asks without pause, or a consumer that answers without a network.

It says `ready`, reads from standard input between which two moments it counts, and tells what it did then in a line of JSON.
Requests and answers have the sizes of connect four's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from azq import games
from azq.bus.base import Entry, RequestBus
from azq.bus.redis import RedisBus
from azq.bus.sharded import open_requests
from azq.config import BrokerConfig, load
from azq.inference.ask.client import StreamEvaluator
from azq.process.start import run_main
from azq.wire import keys
from azq.wire.acl import user_in
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.messages import EvalReply, EvalRequest
from azq.wire.shards import client_shards, on_shard

RUN = "bench-bus"
GAME = "connect_four"
IN_FLIGHT = 2  # as two groups of games in turn
ENTRIES_PER_READ = 16
BLOCK_MS = 100
READY = "ready"


@dataclass(frozen=True, slots=True)
class Window:
    """What counts, by this machine's monotonic clock."""

    start_s: float
    end_s: float

    @classmethod
    def told(cls) -> Window:
        """Says that this process is ready, and hears what counts."""
        print(READY, flush=True)  # noqa: T201
        start_s, end_s = map(float, sys.stdin.readline().split())
        return cls(start_s, end_s)

    def holds(self, now_s: float) -> bool:
        """Whether a moment counts."""
        return self.start_s <= now_s < self.end_s


def ask(broker: BrokerConfig, name: str, request_bytes: int) -> dict[str, Any]:
    """Keeps requests on their way until the window ends; CPU-seconds, and the latency in ms of each one answered in it."""
    game, urls = games.load(GAME), broker.data_planes
    name = f"{user_in(urls[0])}:{name}"
    place = client_shards(RUN, name, len(urls), broker.shards_per_run)[0]
    bus = RedisBus(connect(urls[place], blocking=True))
    client = StreamEvaluator(bus, RUN, on_shard(name, place), num_actions=game.num_distinct_actions(), value_size=game.value_size())
    leaves = max(1, request_bytes // game.packed_size())
    packed = np.random.default_rng(0).integers(0, 256, (leaves, game.packed_size()), np.uint8)
    window = Window.told()
    flying, latencies_ms, cpu_s = [(client.submit(packed), time.monotonic()) for _ in range(IN_FLIGHT)], [], -1.0
    while (now_s := time.monotonic()) < window.end_s:
        if cpu_s < 0 and now_s >= window.start_s:
            cpu_s = time.process_time()
        handle, sent_s = flying[0]
        if client.result(handle, timeout_s=0.2) is None:
            continue
        flying = [*flying[1:], (client.submit(packed), time.monotonic())]
        if window.holds(time.monotonic()):
            latencies_ms.append(1e3 * (time.monotonic() - sent_s))
    used_s = time.process_time() - cpu_s
    client.close()
    return {"cpu_s": used_s, "leaves": len(packed), "latencies_ms": latencies_ms}


def answer(broker: BrokerConfig, name: str) -> dict[str, Any]:
    """Answers whatever comes until the window ends; CPU-seconds and requests in it."""
    bus, game = open_requests(broker), games.load(GAME)
    size, stream, requests, cpu_s = game.num_distinct_actions(), keys.eval_stream(RUN), 0, -1.0
    window = Window.told()
    while (now_s := time.monotonic()) < window.end_s:
        if cpu_s < 0 and now_s >= window.start_s:
            cpu_s, requests = time.process_time(), 0
        entries = bus.read([stream], keys.INFERENCE_GROUP, name, count=ENTRIES_PER_READ, block_ms=BLOCK_MS)
        _answer(bus, stream, entries, size, game.value_size())
        requests += len(entries)
    used_s = time.process_time() - cpu_s
    bus.close()
    return {"cpu_s": used_s, "requests": requests}


def _answer(bus: RequestBus, stream: str, entries: list[Entry], actions: int, values: int) -> None:
    replies = []
    for entry in entries:
        request = decode(entry.frame, EvalRequest)
        logits, value = bytes(2 * actions * request.count), bytes(2 * values * request.count)
        reply = EvalReply(request.request_id, 1, request.count, logits, value)
        replies.append((keys.reply(request.client), encode(reply)))
    if entries:
        bus.answer(replies, stream, keys.INFERENCE_GROUP, [entry.id for entry in entries])


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("ask", "answer"))
    parser.add_argument("name")
    parser.add_argument("--bytes", type=int, required=True)
    asked = parser.parse_args()
    broker = load().broker
    done = ask(broker, asked.name, asked.bytes) if asked.role == "ask" else answer(broker, asked.name)
    print(json.dumps(done), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main("bus-party", _main))
