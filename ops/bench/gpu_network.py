"""The ways in which an inference worker may run one network on a device: evaluations per second of each at one batch size, a line of JSON.

    python ops/bench/gpu_network.py [--device cuda:0] [--blocks 5] [--channels 128] [--batch 8192] [--seconds 3]

Ways on a GPU, in CUDA graphs: `fused` (convolutions of cuDNN with bias, sum and relu in one kernel), `compiled` (torch.compile for this
one size), `plain` (as torch runs it, channels last). A way that fails is named with its reason, and the next one goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from azq import games
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import reason_of
from azq.inference.device.cuda import GraphForward
from azq.inference.device.engine import Engine, fastest_layout
from azq.inference.device.forward import Flight, Forward
from azq.inference.device.model import random_observations
from azq.inference.device.placement import place
from azq.nets import NetSpec, build
from azq.nets.device import prepare_process
from azq.nets.residual import ResNet

ROUNDS = 3


def main() -> None:
    """Measures all ways in turn, the fastest of some rounds each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    network, spec = NetworkConfig(blocks=given.blocks, channels=given.channels), NetSpec.of(games.load("connect_four"))
    config = InferenceConfig(device=given.device, max_batch=given.batch, compile=True)
    placement = place(config)
    prepare_process(placement.threads)
    engine = Engine(config, placement)
    module = build(network, spec, seed=0).eval().requires_grad_(False)
    assert isinstance(module, ResNet)
    for block in module.blocks:  # they start at zero, and kernels draw less power on zeros
        torch.nn.init.kaiming_normal_(block.get_parameter("b.weight"))
    packed = random_observations(spec, engine.rung.max_batch)
    for way in engine.to_measure(fastest_layout(module), engine.rung, (spec, network)) or ("",):
        figures = {"way": way or "plain", "blocks": given.blocks, "channels": given.channels, "batch": len(packed)}
        try:
            _, forward = engine.forward(module, replace(engine.rung, way=way))
            if isinstance(forward, GraphForward):
                forward.refresh(largest_only=True)
            rate = max(rate_of(forward, packed, engine.in_flight, given.seconds / ROUNDS) for _ in range(ROUNDS))
            say({**figures, "evaluations_per_s": round(rate)})
        except Exception as error:  # of a compiler, or of a torch that lacks it
            say({**figures, "failed": reason_of(error)})


def rate_of(forward: Forward, packed: NDArray[np.uint8], in_flight: int, seconds: float) -> float:
    """Evaluations per second with so many batches under way, copies to the device and back included."""
    flying: deque[Flight] = deque()
    done, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        flying.append(forward.launch(packed))
        if len(flying) == in_flight:
            flying.popleft().wait()
            done += len(packed)
    return done / (time.perf_counter() - began_s)


def say(figures: dict[str, object]) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
