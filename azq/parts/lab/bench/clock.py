"""Self-play with the network replaced by a clock: what a turn costs beside the network, and so what keeps a GPU of that speed full.

The clock takes one batch after the other, as a device does, and no CPU. All else is as in a run: search, requests, brokers and the
inference worker.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.config import Config, NetworkConfig, load
from azq.errors import ConfigError
from azq.inference.device.cuda import SLOTS
from azq.inference.device.engine import Engine, Execution, Shape
from azq.inference.device.forward import EagerForward, Forward, InFlightBatch, Outputs
from azq.inference.device.model import PROBE_SIZE
from azq.nets import Network
from azq.parts.lab.bench.rig import changed, command_of, rig
from azq.parts.lab.bench.selfplay import SIMULATIONS, Reading, readings_of

#: requests of 8,192 leaves, two of them under way; games that begin alike would ask for the same leaves
SELFPLAY: dict[str, Any] = {"games_in_flight": 16_384, "groups": 2, "random_opening_plies": 12, "evaluator": "stream"}
NETWORK = NetworkConfig(kind="resnet", blocks=1, channels=8)  # only the self-test runs it
WARM_UP_S = 15.0  # until every tree has had its memory from the system, a ply each
GOAL_LEAVES_PER_S = 3.3e6
CORES = 6


def seconds_of(text: str) -> float:
    """Seconds of `2.2ms` or `0.0022s`; `ConfigError` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text)
    if not match or not 0 < (seconds := float(match[1]) * (1e-3 if match[2] == "ms" else 1.0)) <= 10:
        raise ConfigError(f"--network-clock {text!r} is no time of a batch up to 10 s, such as 2.2ms")
    return seconds


def bench_clock(config: Config, *, seconds: float, game: str, clock_s: float) -> dict[str, Any]:
    """CPU of a turn of self-play by where it is spent, and the leaves per second that processes and threads reach by it."""
    search = {"num_simulations": SIMULATIONS}
    sections = changed(config.run_sections(), run={"game": game}, search=search, network=NETWORK, selfplay=SELFPLAY)
    with rig(config, sections, inference=1, command=command_of(serve, clock_s=clock_s)) as machine:
        before, after, phases = readings_of(machine, "stream", seconds, warm_up_s=WARM_UP_S)
    turn = TurnCost.between(before, after)
    return {
        "game": game,
        "network_clock_ms": clock_s * 1e3,
        "threads": sections.selfplay.threads,
        "leaves_per_turn": round(turn.leaves),
        "serial_ms_per_turn": round(turn.serial_s * 1e3, 3),
        "search_us_per_leaf": round(turn.search_s / turn.leaves * 1e6, 3),
        "inference_ms_per_request": round(turn.inference_s * 1e3, 3),
        "brokers_ms_per_request": round(turn.brokers_s * 1e3, 3),
        "leaves_per_s": round((after.progress.evaluations - before.progress.evaluations) / (after.wall_s - before.wall_s)),
        "selfplay_phases": phases,
        **modelled(turn, clock_s),
    }


@dataclass(frozen=True, slots=True)
class TurnCost:
    """Means of a turn: a group's leaves collected, sent, answered and applied."""

    leaves: float
    serial_s: float  # CPU of the thread that leads, without its part of the search
    search_s: float  # CPU in the core, all threads
    inference_s: float  # CPU of the inference worker
    brokers_s: float  # CPU of the brokers

    @staticmethod
    def between(before: Reading, after: Reading) -> TurnCost:
        """The mean turn between two readings."""
        turns = max(1, after.progress.requests - before.progress.requests)
        serial_s = after.thread_s - before.thread_s - (after.progress.search_s - before.progress.search_s)
        return TurnCost(
            leaves=max(1, after.progress.evaluations - before.progress.evaluations) / turns,
            serial_s=serial_s / turns,
            search_s=(after.own_s - before.own_s - serial_s) / turns,
            inference_s=(after.workers_s - before.workers_s) / turns,
            brokers_s=(after.brokers_s - before.brokers_s) / turns,
        )

    def leaves_per_s(self, processes: int, threads: int, clock_s: float) -> float:
        """Of so many processes of so many threads: each searches for one turn while others wait, and the network takes turns in line."""
        return min(processes * self.leaves / (self.serial_s + self.search_s / threads), self.leaves / clock_s)

    def cores(self, leaves_per_s: float) -> float:
        """Cores that this speed keeps busy, inference worker and brokers included."""
        return leaves_per_s / self.leaves * (self.serial_s + self.search_s + self.inference_s + self.brokers_s)


def modelled(turn: TurnCost, clock_s: float) -> dict[str, Any]:
    """The fastest of processes x threads that six cores carry, and the cores that the goal needs."""
    settings = [(processes, threads) for processes in range(1, CORES + 1) for threads in range(1, CORES // processes + 1)]
    reached = {
        f"{processes}x{threads}": speed
        for processes, threads in settings
        if turn.cores(speed := turn.leaves_per_s(processes, threads, clock_s)) <= CORES
    }
    best = max(reached, key=lambda name: reached[name], default="")
    return {
        "modelled_leaves_per_s": round(reached.get(best, 0.0)),
        "modelled_processes_x_threads": best,
        "modelled_cores": round(turn.cores(reached.get(best, 0.0)), 2),
        "cores_of_goal": round(turn.cores(GOAL_LEAVES_PER_S), 2),
    }


def serve(clock_s: float, leaves: int = 0) -> int:
    """An inference worker whose network is a clock; settings by the environment. Batches of more than `leaves`, if given, take longer."""
    from workers import inference

    return inference.main(load(), make_engine=partial(ClockEngine, clock_s=clock_s, leaves=leaves))


class ClockFlight:
    """A batch on the clock."""

    def __init__(self, outputs: Outputs, ends_s: float) -> None:
        self._outputs = outputs
        self._ends_s = ends_s

    def done(self) -> bool:
        return time.monotonic() >= self._ends_s

    def wait(self) -> Outputs:
        time.sleep(max(0.0, self._ends_s - time.monotonic()))
        return self._outputs

    def finite(self) -> bool:
        self.wait()
        return True


class ClockEngine(Engine):
    """Networks that answer when the clock says so, with random numbers; the few rows of the self-test are evaluated."""

    def __init__(self, *given: Any, clock_s: float, leaves: int = 0) -> None:
        super().__init__(*given)
        self.execution = Execution(self.execution.mode, given[0].max_batch)
        self._clock_s = clock_s
        self._leaves = leaves
        self._free_s = 0.0

    def forward(self, reference: Network, execution: Execution, _shape: Shape) -> tuple[Network, Forward]:
        """The reference, asked by the clock."""
        return reference, ClockForward(self, reference, execution.max_batch)

    @property
    def in_flight(self) -> int:
        """As a GPU has them."""
        return SLOTS

    def end_s(self, count: int) -> float:
        """When a batch of so many that is launched now will be over."""
        share = max(1.0, count / self._leaves) if self._leaves else 1.0
        self._free_s = max(self._free_s, time.monotonic()) + share * self._clock_s
        return self._free_s


class ClockForward:
    """One network on the clock."""

    def __init__(self, engine: ClockEngine, reference: Network, max_batch: int) -> None:
        self._engine = engine
        self._real = EagerForward(reference, engine.placement.device, (PROBE_SIZE,))
        dice, spec = np.random.default_rng(0), reference.spec
        self._logits = dice.normal(0.0, 1.0, (max_batch, spec.num_actions)).astype(np.float16)
        self._values = dice.uniform(-0.5, 0.5, (max_batch, spec.value_size)).astype(np.float16)

    def launch(self, *parts: NDArray[np.uint8]) -> InFlightBatch:
        """Starts a batch, which begins when the one before it is over."""
        count = sum(map(len, parts))
        if count <= PROBE_SIZE:
            return self._real.launch(*parts)
        return ClockFlight((self._logits[:count], self._values[:count]), self._engine.end_s(count))

    def refresh(self) -> None:
        """Nothing: only the self-test asks the network."""
