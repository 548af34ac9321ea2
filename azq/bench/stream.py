"""The same batch with and without the stream: what the queue costs in throughput, and what it adds to a round trip.

The server is a process of its own, as in a run. Bare and stream take turns, so that whatever else the machine does weighs on both.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from azq import games
from azq.bench.rig import RUN, Rig, percentile, rig
from azq.bus.redis import RedisBus
from azq.config import Config, RunSections
from azq.errors import EvaluationTimeout
from azq.inference.ask.client import StreamEvaluator
from azq.phases import Phases
from azq.process.proc import cpu_s
from azq.wire.connect import connect

if TYPE_CHECKING:
    from azq.inference.device.forward import Flight
    from azq.inference.device.model import Model

IN_FLIGHT = 2  # batches of the bare network, as many as a GPU's worker has
REQUESTS = 3  # of the stream: as many, and one on its way
ROUNDS = 3
WARM_UP = 10
PATIENCE_S = 30.0


def throughput(config: Config, sections: RunSections, seconds: float, batch: int) -> dict[str, Any]:
    """Evaluations per second and per CPU-second at one batch size: the bare network in this process, and through the stream."""
    sums = {"bare": [0.0, 0.0, 0.0], "stream": [0.0, 0.0, 0.0]}  # evaluations, wall, CPU
    with rig(config, sections, inference=True) as machine, _client(machine, sections, Phases()) as client:
        packed = observations(sections, batch)
        model = bare_network(machine, sections)
        pids = (os.getpid(), *machine.pids)
        turns: dict[str, tuple[Callable[[float], int], tuple[int, ...]]] = {
            "bare": (partial(_bare_turn, model, packed), pids[:1]),
            "stream": (partial(_stream_turn, client, packed), pids),
        }
        for turn, _ in turns.values():
            turn(seconds / 10)
        for _ in range(ROUNDS):
            for name, (turn, counted) in turns.items():
                for place, value in enumerate(_measured(turn, batch, seconds / ROUNDS / 2, counted)):
                    sums[name][place] += value
    return {
        "batch": batch,
        **{f"{name}_evaluations_per_s": round(count / wall) for name, (count, wall, _) in sums.items()},
        **{f"{name}_evaluations_per_cpu_s": round(count / max(cpu, 1e-9)) for name, (count, _, cpu) in sums.items()},
    }


def latency(config: Config, sections: RunSections, seconds: float, batch: int) -> dict[str, Any]:
    """Milliseconds of one request's round trip, one at a time, and of the bare forward pass that is in it; added: their difference.

    `added_p99_ms` is the 99th percentile of a round trip less the median of the bare pass.
    """
    with rig(config, sections, inference=True) as machine:
        phases = Phases()
        with _client(machine, sections, phases) as client:
            packed = observations(sections, batch)
            model = bare_network(machine, sections)
            bare_ms, trip_ms = [], []
            for _ in range(WARM_UP):
                model.evaluate(packed)
                client.result(client.submit(packed), timeout_s=PATIENCE_S)
            phases.restart()
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:  # in turns
                bare_ms.append(_ms(lambda: model.evaluate(packed)))
                trip_ms.append(_ms(lambda: client.result(client.submit(packed), timeout_s=PATIENCE_S)))
            spent = phases.shares()
    bare_p50 = percentile(bare_ms, 0.5)
    return {
        "batch": batch,
        "requests": len(trip_ms),
        "bare_p50_ms": round(bare_p50, 3),
        "bare_p99_ms": round(percentile(bare_ms, 0.99), 3),
        "round_trip_p50_ms": round(percentile(trip_ms, 0.5), 3),
        "round_trip_p99_ms": round(percentile(trip_ms, 0.99), 3),
        "added_p50_ms": round(percentile(trip_ms, 0.5) - bare_p50, 3),
        "added_p99_ms": round(percentile(trip_ms, 0.99) - bare_p50, 3),
        "client_phases": spent,
    }


def observations(sections: RunSections, batch: int) -> NDArray[np.uint8]:
    """Random packed observations (B, P) of a run's game."""
    game = games.load(sections.run.game, **sections.run.params)
    return np.random.default_rng(0).integers(0, 256, (batch, game.packed_size()), np.uint8)


def bare_network(machine: Rig, sections: RunSections) -> Model:
    """The network with its weights in this process, without broker or queue."""
    from azq.inference.device.model import Model
    from azq.inference.device.placement import place
    from azq.nets import NetSpec
    from azq.nets.process import prepare_process

    placement = place(machine.config.inference)
    prepare_process(placement.threads)
    game = games.load(sections.run.game, **sections.run.params)
    model = Model(NetSpec.of(game), sections.network, machine.config.inference, placement)
    model.load(machine.weights)
    return model


def _bare_turn(model: Model, packed: NDArray[np.uint8], seconds: float) -> int:
    """Batches evaluated; as many in flight as the server has, lest the bare network lose to it for want of overlap."""
    flying: deque[Flight] = deque()
    count, end_s = 0, time.monotonic() + seconds
    while flying or not count or time.monotonic() < end_s:
        if time.monotonic() < end_s or not count:
            flying.append(model.launch(packed))
        if len(flying) >= IN_FLIGHT or time.monotonic() >= end_s:
            flying.popleft().wait()
            count += 1
    return count


def _stream_turn(client: StreamEvaluator, packed: NDArray[np.uint8], seconds: float) -> int:
    """Batches answered; raises `EvaluationTimeout` where one is not."""
    handles = deque(client.submit(packed) for _ in range(REQUESTS))
    count, end_s = 0, time.monotonic() + seconds
    while handles:
        if client.result(handles.popleft(), timeout_s=PATIENCE_S) is None:
            raise EvaluationTimeout(f"no answer to {len(packed)} leaves within {PATIENCE_S:.0f} s")
        count += 1
        if time.monotonic() < end_s:
            handles.append(client.submit(packed))
    return count


@contextlib.contextmanager
def _client(machine: Rig, sections: RunSections, phases: Phases) -> Iterator[StreamEvaluator]:
    game = games.load(sections.run.game, **sections.run.params)
    bus = RedisBus(connect(machine.config.broker.data_planes[0], blocking=True))
    client = StreamEvaluator(bus, RUN, "bench", num_actions=game.num_distinct_actions(), value_size=game.value_size(), phases=phases)
    try:
        yield client
    finally:
        client.close()


def _measured(turn: Callable[[float], int], batch: int, seconds: float, pids: tuple[int, ...]) -> tuple[float, float, float]:
    """Evaluations, wall seconds, CPU-seconds of these processes."""
    cpu, begun_s = cpu_s(pids), time.monotonic()
    count = turn(seconds)
    return count * batch, time.monotonic() - begun_s, cpu_s(pids) - cpu


def _ms(action: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begun_s)
