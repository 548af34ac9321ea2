"""How long new weights and promotions take to every inference worker, and whether serving pauses for them."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, NetworkConfig, StoreConfig
from azq.errors import ConfigError, MissingExtra
from azq.inference.ask.client import StreamEvaluator
from azq.parts.lab.bench.rig import RUN, Rig, changed, observations, percentile, ready_s, rig, rules
from azq.store import open_store
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import PromotionEvent

NETWORK = NetworkConfig(kind="resnet", blocks=5, channels=132)  # 1.6 M parameters for connect four
STORES = ("file", "redis", "s3")
LEAVES = 32  # of one request of the load
IN_FLIGHT = 2  # requests a worker
BEAT_S = 0.02  # heartbeats tell which version is served, so this is how late a switch may be noticed
LOOK_S = 0.005
PAUSE_S = (0.05, 0.4)  # between two publications, so that they fall into no step with anything
SWITCH_PATIENCE_S = 30.0
QUIET_S = 3.0  # of load without publications, to compare gaps with
BUCKET = "azq-bench"


def bench_weights(config: Config, *, workers: int, publications: int, stores: tuple[str, ...]) -> dict[str, Any]:
    """Milliseconds from publishing 1.6 M parameters to the last worker's switch, under load, for each store; gaps between answers beside.

    The clock starts before the blob is written and stops when a heartbeat names the new version, up to 25 ms after the switch.
    Raises `ConfigError` for a store it does not know; one whose package is missing is said and left out.
    """
    if unknown := set(stores) - set(STORES):
        raise ConfigError(f"no store {', '.join(sorted(unknown))} to measure; choose of {', '.join(STORES)}")
    figures: dict[str, Any] = {"workers": workers, "publications": publications}
    for store in stores:
        try:
            with _settings(store) as settings:
                found = _measure(changed(config, store=settings, worker={"heartbeat_s": BEAT_S}), workers, publications)
        except MissingExtra as error:
            figures[f"{store}_left_out"] = str(error)
            continue
        figures |= {f"{store}_{name}": value for name, value in found.items()}
    return figures


def _measure(config: Config, workers: int, publications: int) -> dict[str, float]:
    sections = config.run_sections().model_copy(update={"network": NETWORK})
    with rig(config, sections, inference=workers) as machine, _load(machine) as load:
        threading.Event().wait(QUIET_S)
        quiet_s = load.longest_gap_s()
        seconds, published_s, size, parameters = _publish_all(machine, publications)
        first_s, promoted_s = _promote_all(machine, load, publications)
        return {
            "parameters": float(parameters),
            "blob_bytes": float(size),
            "publish_p50_ms": 1e3 * percentile(published_s, 0.5),
            "p50_ms": 1e3 * percentile(seconds, 0.5),
            "p99_ms": 1e3 * percentile(seconds, 0.99),
            "max_ms": 1e3 * max(seconds),
            "promoted_first_p50_ms": 1e3 * percentile(first_s, 0.5),
            "promoted_first_p95_ms": 1e3 * percentile(first_s, 0.95),
            "promoted_p50_ms": 1e3 * percentile(promoted_s, 0.5),
            "promoted_p95_ms": 1e3 * percentile(promoted_s, 0.95),
            "longest_gap_ms": 1e3 * load.longest_gap_s(),
            "longest_gap_without_ms": 1e3 * quiet_s,
            "answers": float(load.answers),
        }


def _publish_all(machine: Rig, publications: int) -> tuple[list[float], list[float], int, int]:
    """Seconds from publishing to the last switch, and of them those that publishing took, one a publication; bytes and parameters."""
    from azq.learner.publish import Publisher
    from azq.nets import NetSpec, WeightsMeta, build, to_bytes

    network, luck, pause = build(NETWORK, NetSpec.of(rules(machine.sections))), random.Random(0), threading.Event()
    store = open_store(machine.config.store, directory=machine.config.home / RUN / "weights", client=machine.control)
    publisher = Publisher(RedisBus(machine.control), store, RUN)
    seconds, published_s, data = [], [], b""
    for step in range(publications):
        version = publisher.next_version()
        data = to_bytes(network, WeightsMeta(machine.sections.run.game, version, step, network=NETWORK.model_dump(mode="json")))
        pause.wait(luck.uniform(*PAUSE_S))
        began_s = time.monotonic()
        publisher.publish(data, version, step)
        published_s.append(time.monotonic() - began_s)
        until(partial(machine.serving, version), f"version {version} was not taken", SWITCH_PATIENCE_S, every_s=LOOK_S)
        seconds.append(time.monotonic() - began_s)
    return seconds, published_s, len(data), sum(value.numel() for value in network.parameters())


def _promote_all(machine: Rig, load: Load, promotions: int) -> tuple[list[float], list[float]]:
    """Seconds from noting that an earlier version serves to the first evaluation by it, and to the last worker's switch."""
    luck, pause, bus, chosen = random.Random(1), threading.Event(), RedisBus(machine.control), 0
    first_s, last_s = [], []
    for _ in range(promotions):
        chosen = luck.choice([version for version in range(1, promotions + 1) if version != chosen])
        pause.wait(luck.uniform(*PAUSE_S))
        began_s = time.monotonic()
        bus.publish(keys.promotions(RUN), encode(PromotionEvent(chosen, "promoted", "", "bench", now_ms())))
        until(partial(load.heard, chosen), f"nobody evaluates by version {chosen}", SWITCH_PATIENCE_S, every_s=LOOK_S)
        first_s.append(time.monotonic() - began_s)
        until(partial(_all_serve, machine, chosen), f"version {chosen} does not serve", SWITCH_PATIENCE_S, every_s=LOOK_S)
        last_s.append(time.monotonic() - began_s)
    return first_s, last_s


def _all_serve(machine: Rig, version: int) -> bool:
    return all(beat.weight_versions.get(RUN) == version for beat in machine.beats())


@dataclass(slots=True)
class Load:
    """Requests that never stop; tells the longest time without an answer since it was last asked."""

    evaluator: StreamEvaluator
    requests: int
    packed: np.ndarray[Any, np.dtype[np.uint8]]
    answers: int = 0
    version: int = 0  # of the newest answer
    stop: threading.Event = field(default_factory=threading.Event)
    _gap_s: float = 0.0

    def longest_gap_s(self) -> float:
        """The longest time between two answers; begins anew."""
        gap_s, self._gap_s = self._gap_s, 0.0
        return gap_s

    def heard(self, version: int) -> bool:
        """Whether the newest answer is of this version."""
        return self.version == version

    def run(self) -> None:
        """Keeps the requests in flight until `stop`."""
        handles = [self.evaluator.submit(self.packed) for _ in range(self.requests)]
        heard_s = time.monotonic()
        while not self.stop.is_set():
            if (evaluation := self.evaluator.result(handles[0], timeout_s=0.5)) is None:
                continue
            self.version = evaluation.weight_version
            now_s = time.monotonic()
            self._gap_s, heard_s = max(self._gap_s, now_s - heard_s), now_s
            self.answers += 1
            handles = [*handles[1:], self.evaluator.submit(self.packed)]


@contextlib.contextmanager
def _load(machine: Rig) -> Iterator[Load]:
    with machine.client(max_in_flight=64) as evaluator:
        load = Load(evaluator, IN_FLIGHT * len(machine.workers), observations(machine.sections, LEAVES)[0])
        thread = threading.Thread(target=load.run, name="load")
        thread.start()
        try:
            until(lambda: load.answers > 0, "nobody answers the load", ready_s(machine.config.inference.device))
            yield load
        finally:
            load.stop.set()
            thread.join()


@contextlib.contextmanager
def _settings(store: str) -> Iterator[StoreConfig]:
    """The settings of a store; for `s3` a local server with a bucket of its own."""
    if store != "s3":
        yield StoreConfig(url=store)
        return
    try:
        import httpx2
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise MissingExtra(f"a local S3 server needs another package: {error}; pip install 'azq[s3]' 'moto[s3,server]'") from None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        httpx2.put(f"http://{host}:{port}/{BUCKET}", trust_env=False).raise_for_status()
        options = {"endpoint_url": f"http://{host}:{port}", "key": "bench", "secret": "bench-secret"}
        yield StoreConfig.model_validate({"url": f"s3://{BUCKET}/weights", "options": options})
    finally:
        server.stop()
