"""The same batch with and without the stream: what the queue costs in throughput, and what it adds to a round trip.

The server is another process, as in a run. Bare and stream take turns, so that whatever else the machine does weighs on both.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from azq.config import Config
from azq.errors import EvaluationTimeout
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.native import kernel_for
from azq.nets import NetSpec, build
from azq.nets.device import place
from azq.parts.lab.bench.rig import Rig, in_turns, observations, percentile, rig, rules
from azq.parts.lab.bench.selfplay import sections_for
from azq.phases import Phases

if TYPE_CHECKING:
    from azq.inference.device.forward import InFlightBatch
    from azq.inference.device.model import Model

IN_FLIGHT = 2  # batches of the bare network, as many as a GPU's worker has
REQUESTS = 3  # of the stream: as many, and one on its way
ROUNDS = 3
WARM_UP = 10
PEAK_TRIES, PEAK_ROUNDS = 10, 2_000_000
PATIENCE_S = 30.0


def bench_inference(config: Config, *, seconds: float, game: str, batch: int = 0) -> dict[str, Any]:
    """Evaluations per CPU-second at `batch`, or that of one self-play group: the bare network, and everything from client to broker.

    Then what the stream adds to the round trip of one such batch.
    """
    with rig(config, sections_for(config, game), inference=1) as machine:
        batch = batch or config.selfplay.games_in_flight // config.selfplay.groups
        rates = throughput(machine, 2 * seconds, batch)
        share = rates["stream_evaluations_per_cpu_s"] / rates["bare_evaluations_per_cpu_s"]
        peak = share_of_peak(machine, rates["bare_evaluations_per_cpu_s"])
        return {**rates, "stream_share_of_bare": round(share, 4), **peak, **latency(machine, seconds, batch)}


def throughput(machine: Rig, seconds: float, batch: int) -> dict[str, Any]:
    """Evaluations per second and per CPU-second at one batch size: the bare network in this process, and through the stream."""
    (packed, legal), model = observations(machine.sections, batch), machine.bare_network()
    pids = (os.getpid(), *machine.pids)
    with machine.client() as client:
        ask = partial(client.submit, packed, legal=legal)
        turns = {"bare": (partial(_bare_turn, model, packed), pids[:1]), "stream": (partial(_stream_turn, client, ask), pids)}
        spent = in_turns(turns, seconds, ROUNDS)
    return {
        "batch": batch,
        **{f"{name}_evaluations_per_s": round(batch * done / wall_s) for name, (done, wall_s, _) in spent.items()},
        **{f"{name}_evaluations_per_cpu_s": round(batch * done / max(cpu_s, 1e-9)) for name, (done, _, cpu_s) in spent.items()},
    }


def share_of_peak(machine: Rig, evaluations_per_cpu_s: float) -> dict[str, Any]:
    """The network's products in a CPU-second, convolutions written out, over those that the same instructions make on registers alone.

    Nothing where torch evaluates.
    """
    spec = NetSpec.of(rules(machine.sections))
    module = build(machine.sections.network, spec, seed=0)
    kernel = kernel_for(module, place(machine.config.inference))
    if kernel is None:
        return {}
    products = sum(weight.numel() * (spec.rows * spec.cols if weight.ndim == 4 else 1) for weight in module.parameters() if weight.ndim > 1)
    peak = 0.0
    for _ in range(PEAK_TRIES):  # the best one was disturbed least
        begun_s = time.thread_time()
        peak = max(peak, kernel.multiply(PEAK_ROUNDS) / (time.thread_time() - begun_s))
    share = {"share_of_integer_peak": round(products * evaluations_per_cpu_s / peak, 3)}
    return {"products_an_evaluation": products, "peak_products_per_cpu_s": round(peak), **share}


def latency(machine: Rig, seconds: float, batch: int) -> dict[str, Any]:
    """Milliseconds of one request's round trip, one at a time, and of the bare forward pass that is in it; added: their difference.

    `added_p99_ms` is the 99th percentile of a round trip less the median of the bare pass.
    """
    (packed, legal), model, phases = observations(machine.sections, batch), machine.bare_network(), Phases()
    bare_ms, trip_ms = list[float](), list[float]()
    with machine.client(phases=phases) as client:

        def trip() -> object:
            return client.result(client.submit(packed, legal=legal), timeout_s=PATIENCE_S)

        for _ in range(WARM_UP):
            model.evaluate(packed)
            trip()
        phases.restart()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:  # in turns
            bare_ms.append(_ms(lambda: model.evaluate(packed)))
            trip_ms.append(_ms(trip))
        spent = phases.shares()
    added_ms = [value - percentile(bare_ms, 0.5) for value in trip_ms]
    rounded = {
        f"{name}_p{share}_ms": round(percentile(values, share / 100), 3)
        for name, values in {"bare": bare_ms, "round_trip": trip_ms, "added": added_ms}.items()
        for share in (50, 99)
    }
    return {"batch": batch, "requests": len(trip_ms), **rounded, "client_phases": spent}


def _bare_turn(model: Model, packed: NDArray[np.uint8], seconds: float) -> int:
    """Batches evaluated; as many in flight as the server has, so that both overlap alike."""
    launched: deque[InFlightBatch] = deque()
    count, end_s = 0, time.monotonic() + seconds
    while launched or not count or time.monotonic() < end_s:
        if time.monotonic() < end_s or not count:
            launched.append(model.launch(packed))
        if len(launched) >= IN_FLIGHT or time.monotonic() >= end_s:
            launched.popleft().wait()
            count += 1
    return count


def _stream_turn(client: StreamEvaluator, ask: Callable[[], int], seconds: float) -> int:
    """Requests answered; raises `EvaluationTimeout` where one is not."""
    handles = deque(ask() for _ in range(REQUESTS))
    count, end_s = 0, time.monotonic() + seconds
    while handles:
        if client.result(handles.popleft(), timeout_s=PATIENCE_S) is None:
            raise EvaluationTimeout(f"no answer within {PATIENCE_S:.0f} s")
        count += 1
        if time.monotonic() < end_s:
            handles.append(ask())
    return count


def _ms(action: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begun_s)
