"""Requests and replies over the data plane: what one costs, and what one broker carries.

Each party of the load is a process: a client that asks without pause, or a consumer that answers without a network. It says `ready`, reads
from standard input between which two moments it counts, and tells what it did then. Requests and answers have the sizes of connect four's.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from azq import games
from azq.bus.base import Entry, RequestBus
from azq.bus.redis import RedisBus
from azq.bus.sharded import open_requests
from azq.config import Config, load
from azq.config.host import trusting
from azq.errors import BrokerUnavailable, EvaluationTimeout
from azq.host.brokers import Brokers, with_urls
from azq.host.fronts import FrontPlan, Listen, children, free_port
from azq.host.users import in_roles
from azq.inference.ask.client import StreamEvaluator
from azq.parts.lab.bench.rig import PartProcess, brokers_cpu_s, percentile, running, start_together, told
from azq.process.proc import cpu_s
from azq.process.start import child_environment
from azq.waiting import until
from azq.wire import keys
from azq.wire.acl import user_in
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.keys import Role
from azq.wire.messages import EvalReply, EvalRequest
from azq.wire.shards import client_shards, on_shard

RUN = "bench-bus"
GAME = "connect_four"
REQUEST_BYTES = 16 * 1024  # of the request that is measured in one process
ALONE_IN_FLIGHT = 4
IN_FLIGHT = 2  # of a client, as two groups of games in turn
ENTRIES_PER_READ = 16
BLOCK_MS = 100
WARM_UP_S = 0.5
PATIENCE_S = 30.0
UP_WITHIN_S = 30.0


def bench_bus(
    config: Config,
    *,
    seconds: float,
    clients: int = 2,
    consumers: int = 1,
    sizes: tuple[int, ...] = (16 * 1024, 64 * 1024),
    tls: bool = False,
) -> dict[str, Any]:
    """Latency and CPU of a request in one process; then, for each size, requests and leaves a second between processes of their own.

    `*_broker_limit_requests_per_s` is what a broker's CPU for one request leaves room for in a second: one whose core is full
    carries no more. `tls`: everybody comes through the brokers' fronts, as from other machines.
    """
    with (
        tempfile.TemporaryDirectory(prefix="azq-bench-") as folder,
        Brokers(config, Path(folder), Listen("127.0.0.1", free_port(1 + config.broker.data_shards)) if tls else None) as brokers,
        _reached(brokers, config, Path(folder)) as (config, fronts),
    ):
        figures: dict[str, Any] = alone(config.broker.data_planes[0], seconds)
        figures |= {"clients": clients, "consumers": consumers, "brokers": len(config.broker.data_planes)}
        for size in sizes:
            found = _carried(config, seconds, clients, consumers, size, fronts)
            figures |= {f"{size // 1024}kib_{name}": value for name, value in found.items()}
    return figures


def alone(url: str, seconds: float, request_bytes: int = REQUEST_BYTES) -> dict[str, float]:
    """A client and a consumer in this process: latency, rate, and CPU of all three parties."""
    stream, replies = keys.eval_stream(RUN), keys.reply(RUN)
    requester, responder, stop = RedisBus(url), RedisBus(url), threading.Event()
    requester.delete(stream, replies)
    thread = threading.Thread(target=_echo, args=(responder, stream, stop))
    thread.start()
    try:
        used_s, began_s = time.process_time() + brokers_cpu_s([url]), time.monotonic()
        latencies_ms = _ask_around(requester, stream, replies, bytes(request_bytes), began_s + seconds)
        wall_s, used_s = time.monotonic() - began_s, time.process_time() + brokers_cpu_s([url]) - used_s
    finally:
        stop.set()
        thread.join()
        requester.delete(stream, replies)
        requester.close()
        responder.close()
    return {
        "request_bytes": float(request_bytes),
        "requests_per_s": len(latencies_ms) / wall_s,
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
        "cpu_us_per_request": 1e6 * used_s / len(latencies_ms),
    }


def _echo(bus: RedisBus, stream: str, stop: threading.Event) -> None:
    """Answers with a quarter of what it was asked."""
    while not stop.is_set():
        entries = bus.read([stream], keys.INFERENCE_GROUP, "echo", count=ENTRIES_PER_READ, block_ms=50)
        requests = [decode(entry.frame, EvalRequest) for entry in entries]
        answers = [EvalReply(request.request_id, 1, 1, request.packed[: len(request.packed) // 4], b"") for request in requests]
        bus.reply([(keys.reply(request.client), encode(answer)) for request, answer in zip(requests, answers, strict=True)])
        bus.ack(stream, keys.INFERENCE_GROUP, [entry.id for entry in entries])


def _ask_around(bus: RedisBus, stream: str, replies: str, payload: bytes, end_s: float) -> list[float]:
    """Keeps requests on their way until `end_s`; returns the latency in ms of each answered one."""
    sent_s: dict[int, float] = {}
    latencies_ms: list[float] = []
    number = 0
    while time.monotonic() < end_s:
        while len(sent_s) < ALONE_IN_FLIGHT:
            number += 1
            sent_s[number] = time.monotonic()
            bus.publish(stream, encode(EvalRequest(number, RUN, 0, 1, payload, 0)))
        for frame in bus.take_replies(replies, timeout_s=0.2):
            latencies_ms.append(1e3 * (time.monotonic() - sent_s.pop(decode(frame, EvalReply).request_id)))
    return latencies_ms


def _carried(config: Config, seconds: float, clients: int, consumers: int, size: int, fronts: Sequence[int]) -> dict[str, float]:
    asking = [PartProcess(ask, _environment(config, "worker"), name=f"client-{number}", request_bytes=size) for number in range(clients)]
    answering = [PartProcess(answer, _environment(config, "inference"), name=f"consumer-{number}") for number in range(consumers)]
    start_s = start_together([*asking, *answering], seconds, WARM_UP_S)
    end_s, pause, urls = start_s + seconds, threading.Event(), config.broker.data_planes
    pause.wait(start_s - time.monotonic())
    before_s, fronts_before_s = brokers_cpu_s(urls), cpu_s(fronts)
    pause.wait(end_s - time.monotonic())
    broker_s, fronts_s = brokers_cpu_s(urls) - before_s, cpu_s(fronts) - fronts_before_s
    asked, answered = ([process.answer(PATIENCE_S) for process in party] for party in (asking, answering))
    latencies_ms = [latency for one in asked for latency in one["latencies_ms"]]
    if not latencies_ms:
        raise EvaluationTimeout(f"no request of {size} bytes was answered within {seconds:g} s; is the machine overloaded?")
    requests, leaves = len(latencies_ms), asked[0]["leaves"]
    return {
        "requests_per_s": requests / seconds,
        "leaves_per_s": requests * leaves / seconds,
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
        "client_cpu_us_per_request": 1e6 * sum(one["cpu_s"] for one in asked) / requests,
        "consumer_cpu_us_per_request": 1e6 * sum(one["cpu_s"] for one in answered) / requests,
        "broker_cpu_us_per_request": 1e6 * broker_s / requests,
        **({"front_cpu_us_per_request": 1e6 * fronts_s / requests} if fronts else {}),
        "broker_limit_requests_per_s": requests / broker_s,
        "broker_limit_leaves_per_s": requests * leaves / broker_s,
    }


def _environment(config: Config, role: Role) -> dict[str, str]:
    return child_environment(in_roles(config)(role), role)


@contextlib.contextmanager
def _reached(brokers: Brokers, config: Config, folder: Path) -> Iterator[tuple[Config, Sequence[int]]]:
    """Settings with the addresses to use, and the fronts' process ids. Raises `EvaluationTimeout` where a front does not come up."""
    applied = brokers.apply(config)
    if not brokers.fronts:
        yield applied, ()
        return
    with running(children(brokers.fronts, folder)) as pids:
        own = (applied.broker.control_url, *applied.broker.data_planes)
        urls = [_through(url, plan) for url, plan in zip(own, brokers.fronts, strict=True)]
        for url in urls:
            until(partial(_answers, url), f"a front does not answer, see {folder}", UP_WITHIN_S)
        yield with_urls(applied, *urls), pids


def _through(url: str, front: FrontPlan) -> str:
    return trusting(f"rediss://{urlsplit(url).netloc.rpartition('@')[0]}@{front.address}/0", str(front.certificate))


def _answers(url: str) -> bool:
    with contextlib.suppress(BrokerUnavailable):
        connect(url).close()
        return True
    return False


def ask(name: str, request_bytes: int) -> dict[str, Any]:
    """Keeps requests on their way until the time is over; CPU-seconds, and the latency in ms of each one answered in it."""
    broker, game = load().broker, games.load(GAME)
    urls = broker.data_planes
    name = f"{user_in(urls[0])}:{name}"
    place = client_shards(RUN, name, len(urls), broker.shards_per_run)[0]
    bus = RedisBus(connect(urls[place], blocking=True))
    client = StreamEvaluator(bus, RUN, on_shard(name, place), num_actions=game.num_distinct_actions(), value_size=game.value_size())
    leaves = max(1, request_bytes // game.packed_size())
    packed = np.random.default_rng(0).integers(0, 256, (leaves, game.packed_size()), np.uint8)
    start_s, end_s = told()
    flying, latencies_ms, used_s = [(client.submit(packed), time.monotonic()) for _ in range(IN_FLIGHT)], [], -1.0
    while (now_s := time.monotonic()) < end_s:
        if used_s < 0 and now_s >= start_s:
            used_s = time.process_time()
        handle, sent_s = flying[0]
        if client.result(handle, timeout_s=0.2) is None:
            continue
        flying = [*flying[1:], (client.submit(packed), time.monotonic())]
        if start_s <= (answered_s := time.monotonic()) < end_s:
            latencies_ms.append(1e3 * (answered_s - sent_s))
    used_s = time.process_time() - used_s
    client.close()
    return {"cpu_s": used_s, "leaves": len(packed), "latencies_ms": latencies_ms}


def answer(name: str) -> dict[str, Any]:
    """Answers whatever comes until the time is over; CPU-seconds in it."""
    bus, game = open_requests(load().broker), games.load(GAME)
    size, stream, used_s = game.num_distinct_actions(), keys.eval_stream(RUN), -1.0
    start_s, end_s = told()
    while (now_s := time.monotonic()) < end_s:
        if used_s < 0 and now_s >= start_s:
            used_s = time.process_time()
        entries = bus.read([stream], keys.INFERENCE_GROUP, name, count=ENTRIES_PER_READ, block_ms=BLOCK_MS)
        _answer(bus, stream, entries, size, game.value_size())
    used_s = time.process_time() - used_s
    bus.close()
    return {"cpu_s": used_s}


def _answer(bus: RequestBus, stream: str, entries: list[Entry], actions: int, values: int) -> None:
    replies = []
    for entry in entries:
        request = decode(entry.frame, EvalRequest)
        logits, value = bytes(2 * actions * request.count), bytes(2 * values * request.count)
        replies.append((keys.reply(request.client), encode(EvalReply(request.request_id, 1, request.count, logits, value))))
    if entries:
        bus.answer(replies, stream, keys.INFERENCE_GROUP, [entry.id for entry in entries])
