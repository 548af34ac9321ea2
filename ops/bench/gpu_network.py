"""The ways in which an inference worker may run one network on a device: evaluations per second of each at one batch size, a line of JSON.

    python ops/bench/gpu_network.py [--device cuda:0] [--blocks 5] [--channels 128] [--batch 8192] [--seconds 3] [--only WAY]

Ways on a GPU, in CUDA graphs: `fused` (convolutions of cuDNN with bias, sum and relu in one kernel), `compiled` (torch.compile for this
one size), `plain` (as torch runs it, channels last). A way that fails is named with its reason, and the next one goes on. Beside the rate:
`first_s`, until the largest batch's graphs were there (cuDNN's search and torch's compiler included), `again_s`, the same for the next
version of the weights, `all_s`, until graphs of all sizes were, and the kernels that take longest. With `--learner-batch N` the seconds of
a learner's first steps in a new process come instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity, profile, supported_activities

from azq import games
from azq.config import InferenceConfig, LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.errors import reason_of
from azq.inference.device.cuda import GraphForward
from azq.inference.device.engine import Engine, fastest_layout
from azq.inference.device.forward import Forward, InFlightBatch
from azq.inference.device.model import random_observations
from azq.learner.opening import prepare_training
from azq.nets import NetSpec, build
from azq.nets.device import place, prepare_process
from azq.nets.residual import ResNet
from azq.parts.lab.bench.learner import steps_for, whole_step, workplace

ROUNDS = 3
KERNELS, PROFILED = 12, 10  # the longest, over so many batches
RTC = "TORCH_CUDNN_V8_API_RTC_ENABLED"


def main() -> None:
    """Measures all ways in turn, the fastest of some rounds each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--learner-batch", type=int, default=0)
    given = parser.parse_args()
    network = NetworkConfig(kind="resnet", blocks=given.blocks, channels=given.channels)
    if given.learner_batch:
        say({"first_steps_s": first_steps(network, given.device, given.learner_batch)})
    else:
        measure(network, given)


def measure(network: NetworkConfig, given: argparse.Namespace) -> None:
    """A line for each way, then one that says how long all graphs of the fastest take."""
    spec, config = NetSpec.of(games.load("connect_four")), InferenceConfig(device=given.device, max_batch=given.batch, compile=True)
    placement = place(config)
    prepare_process(placement.threads)
    engine = Engine(config, placement)
    module = build(network, spec, seed=0).eval().requires_grad_(False)
    assert isinstance(module, ResNet)
    for block in module.blocks:  # they start at zero, and kernels draw less power on zeros
        torch.nn.init.kaiming_normal_(block.get_parameter("b.weight"))
    packed = random_observations(spec, engine.execution.max_batch)

    def make(way: str) -> Forward:
        forward = engine.forward(module, replace(engine.execution, kernels=way), (spec, network))[1]
        if isinstance(forward, GraphForward):
            forward.refresh(largest_only=True)
        return forward

    rates: dict[str, float] = {}
    names = engine.to_measure(fastest_layout(module), engine.execution, (spec, network)) or ("",)
    for way in names:
        if given.only and (way or "plain") != given.only:
            continue
        figures = {"way": way or "plain", "rtc": os.environ.get(RTC, ""), "blocks": given.blocks, "channels": given.channels}
        try:
            forward, first_s = timed(make, way)
            rates[way] = max(rate_of(forward, packed, engine.in_flight, given.seconds / ROUNDS) for _ in range(ROUNDS))
            figures |= {"batch": len(packed), "evaluations_per_s": round(rates[way]), "first_s": first_s, "again_s": timed(make, way)[1]}
            say(figures | {"kernels": longest_kernels(forward, packed)})
        except Exception as error:  # of a compiler, or of a torch that lacks it
            say({**figures, "failed": reason_of(error)})
    if rates:
        best = max(rates, key=rates.__getitem__)
        forward = engine.forward(module, replace(engine.execution, kernels=best), (spec, network))[1]
        say({"fastest": best or "plain", "all_s": timed(forward.refresh)[1]})


def first_steps(network: NetworkConfig, device: str, batch: int) -> list[float]:
    """Seconds of a new learner's first three steps; in the first cuDNN searches, and libraries load."""
    sections = RunSections(run=RunConfig(game="connect_four"), network=network, learner=LearnerConfig(device=device, batch_size=batch))
    on = prepare_training(sections.learner)
    trainer, _, feed = workplace(sections, on, 4 * batch)
    step = whole_step(trainer, feed, feed.order(0, batch, 4 * batch))
    seconds = [timed(steps_for, step, on, 0.0)[1] for _ in range(3)]
    feed.close()
    return seconds


def timed(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """What comes of some work, and how many seconds it took."""
    began_s = time.perf_counter()
    result = work(*given)
    return result, round(time.perf_counter() - began_s, 2)


def longest_kernels(forward: Forward, packed: NDArray[np.uint8]) -> list[list[Any]]:
    """Name, microseconds a batch and calls a batch of the kernels that take longest."""
    kinds = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & supported_activities()  # type: ignore[no-untyped-call]
    with profile(activities=kinds) as seen:
        for _ in range(PROFILED):
            forward.launch(packed).wait()
    time_of = attrgetter("self_device_time_total" if ProfilerActivity.CUDA in kinds else "self_cpu_time_total")
    spent = [(row.key, time_of(row), row.count) for row in seen.key_averages()]
    spent.sort(key=lambda row: -row[1])
    return [[name[:120], round(us / PROFILED, 1), round(count / PROFILED, 1)] for name, us, count in spent[:KERNELS]]


def rate_of(forward: Forward, packed: NDArray[np.uint8], in_flight: int, seconds: float) -> float:
    """Evaluations per second with so many batches under way, copies to the device and back included."""
    launched: deque[InFlightBatch] = deque()
    done, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        launched.append(forward.launch(packed))
        if len(launched) == in_flight:
            launched.popleft().wait()
            done += len(packed)
    return done / (time.perf_counter() - began_s)


def say(figures: dict[str, object]) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
