"""What inference costs on this machine: the bare forward pass, the same through the stream, and the stream without a network."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from azq.bus.connect import connect
from azq.bus.redis import RedisBus
from azq.config import InferenceConfig, NetworkConfig, RunConfig, RunSections
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.model import Model
from azq.inference.device.placement import place
from azq.inference.serve.server import InferenceServer
from azq.ledger.records import record_of
from azq.ledger.types import RunState, RunView
from azq.nets import NetSpec, WeightsMeta, build, to_bytes
from azq.nets.process import prepare_process
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest, WeightEvent

BENCH_RUN = "azq-bench"
WARM_UP_S = 0.5
IN_FLIGHT = 2  # as two groups of games in turn


def bench_inference(
    config: InferenceConfig,
    network: NetworkConfig,
    spec: NetSpec,
    control_url: str,
    data_url: str,
    *,
    game: str,
    seconds: float,
    batch: int,
) -> dict[str, float]:
    """Evaluations per second and per CPU-second, bare and through the stream.

    The stream's CPU time holds client, server and both brokers, so its share of the bare figure is the price of the queue.
    """
    prepare_process(place(config).threads)
    data = to_bytes(build(network, spec, seed=0), WeightsMeta(game, 1, 0, network=network.model_dump(mode="json")))
    packed = np.random.default_rng(0).integers(0, 256, (batch, spec.packed_size), np.uint8)
    bare = _bare(config, network, spec, data, packed, seconds)
    stream = _through_the_stream(config, network, spec, data, packed, (control_url, data_url), game, seconds)
    share = stream["evaluations_per_cpu_s"] / bare["evaluations_per_cpu_s"]
    figures = {f"bare_{name}": value for name, value in bare.items()} | {f"stream_{name}": value for name, value in stream.items()}
    return {"batch": float(batch), **figures, "stream_share_of_bare": share}


def bench_bus(url: str, *, seconds: float, request_bytes: int = 16384, in_flight: int = 4) -> dict[str, float]:
    """Request and reply over the evaluation stream without a network: latency, rate, and CPU of all three parties."""
    key = f"{BENCH_RUN}-bus"
    stream, replies = keys.eval_stream(key), keys.reply(key)
    requester, responder = RedisBus(url), RedisBus(url)
    requester.delete(stream, replies)
    stop = threading.Event()
    thread = threading.Thread(target=_echo, args=(responder, stream, stop))
    thread.start()
    try:
        cpu_s, began_s = _cpu_s([url]), time.monotonic()
        latencies_s = _ask_around(requester, stream, replies, key, bytes(request_bytes), in_flight, began_s + seconds)
        wall_s, used_s = time.monotonic() - began_s, _cpu_s([url]) - cpu_s
    finally:
        stop.set()
        thread.join()
        requester.delete(stream, replies)
        requester.close()
        responder.close()
    ordered = np.sort(np.array(latencies_s)) * 1e3
    return {
        "request_bytes": float(request_bytes),
        "requests_per_s": len(ordered) / wall_s,
        "p50_ms": float(np.percentile(ordered, 50)),
        "p99_ms": float(np.percentile(ordered, 99)),
        "cpu_us_per_request": used_s / len(ordered) * 1e6,
    }


def _bare(
    config: InferenceConfig, network: NetworkConfig, spec: NetSpec, data: bytes, packed: NDArray[np.uint8], seconds: float
) -> dict[str, float]:
    model = Model(spec, network, config)
    model.load(data)

    def evaluate() -> int:
        return len(model.evaluate(packed)[0])

    return _measure(evaluate, [], seconds)


def _through_the_stream(
    config: InferenceConfig,
    network: NetworkConfig,
    spec: NetSpec,
    data: bytes,
    packed: NDArray[np.uint8],
    urls: tuple[str, str],
    game: str,
    seconds: float,
) -> dict[str, float]:
    control, server_bus, client_bus = RedisBus(urls[0]), RedisBus(urls[1]), RedisBus(urls[1])
    event = WeightEvent(BENCH_RUN, 1, hashlib.sha256(data).hexdigest(), "", 0, 0)
    _clean(control, client_bus)
    control.publish(keys.weights(BENCH_RUN), codec.encode(event))
    runs = _BenchRun(RunSections(run=RunConfig(game=game), network=network))
    server = InferenceServer(control, server_bus, runs, lambda _view: lambda _event: data, config, "bench", spec_of=lambda _sections: spec)
    client = StreamEvaluator(client_bus, BENCH_RUN, "bench", num_actions=spec.num_actions, value_size=spec.value_size)
    stop = threading.Event()
    thread = threading.Thread(target=_serve, args=(server, stop))
    thread.start()
    handles = [client.submit(packed) for _ in range(IN_FLIGHT)]

    def evaluate() -> int:
        evaluation = client.result(handles[0], timeout_s=0.1)
        if evaluation is None:
            return 0
        handles.pop(0)
        handles.append(client.submit(packed))
        return len(evaluation.logits)

    try:
        return _measure(evaluate, list(urls), seconds)
    finally:
        stop.set()
        thread.join()
        server.close()
        _clean(control, server_bus)
        client.close()
        server_bus.close()
        control.close()


class _BenchRun:
    """A ledger of one run."""

    def __init__(self, sections: RunSections) -> None:
        record = record_of(BENCH_RUN, sections)
        self._views = [RunView(record, RunState.RUNNING, "", 0, 0)]

    def names(self) -> list[str]:
        return [BENCH_RUN]

    def runs(self, names: Sequence[str] | None = None) -> list[RunView]:
        return self._views if names is None or BENCH_RUN in names else []

    def stirring(self, names: Sequence[str]) -> list[str]:
        return list(names)


def _serve(server: InferenceServer, stop: threading.Event) -> None:
    while not stop.is_set():
        server.step()


def _clean(control: RedisBus, data: RedisBus) -> None:
    control.delete(keys.weights(BENCH_RUN))
    data.delete(keys.eval_stream(BENCH_RUN))


def _measure(evaluate: Callable[[], int], urls: list[str], seconds: float) -> dict[str, float]:
    _repeat(evaluate, WARM_UP_S)
    cpu_s, began_s = _cpu_s(urls), time.monotonic()
    count = _repeat(evaluate, seconds)
    wall_s, used_s = time.monotonic() - began_s, _cpu_s(urls) - cpu_s
    return {"evaluations_per_s": count / wall_s, "evaluations_per_cpu_s": count / used_s}


def _repeat(evaluate: Callable[[], int], seconds: float) -> int:
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        count += evaluate()
    return count


def _cpu_s(urls: list[str]) -> float:
    """CPU seconds of this process and of the brokers at these addresses, each counted once."""
    brokers = {}
    for url in urls:
        client = connect(url)
        facts = client.info()
        brokers[facts["run_id"]] = float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
        client.close()
    return time.process_time() + sum(brokers.values())


def _echo(bus: RedisBus, stream: str, stop: threading.Event) -> None:
    while not stop.is_set():
        entries = bus.read([stream], keys.INFERENCE_GROUP, "echo", count=16, block_ms=50)
        requests = [codec.decode(entry.frame, EvalRequest) for entry in entries]
        answers = [EvalReply(request.request_id, 1, 1, request.packed[: len(request.packed) // 4], b"") for request in requests]
        bus.reply([(keys.reply(request.client), codec.encode(answer)) for request, answer in zip(requests, answers, strict=True)])
        bus.ack(stream, keys.INFERENCE_GROUP, [entry.id for entry in entries])


def _ask_around(bus: RedisBus, stream: str, replies: str, client: str, payload: bytes, in_flight: int, end_s: float) -> list[float]:
    """Keeps `in_flight` requests on their way until `end_s`; returns the latency of each answered one."""
    sent_s: dict[int, float] = {}
    latencies_s: list[float] = []
    number = 0
    while time.monotonic() < end_s:
        while len(sent_s) < in_flight:
            number += 1
            sent_s[number] = time.monotonic()
            bus.publish(stream, codec.encode(EvalRequest(number, client, 0, 1, payload, 0)))
        for frame in bus.take_replies(replies, timeout_s=0.2):
            latencies_s.append(time.monotonic() - sent_s.pop(codec.decode(frame, EvalReply).request_id))
    return latencies_s
