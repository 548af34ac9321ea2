"""What flat and global heads cost where networks run in whole numbers: evaluations per CPU-second of one thread, in turns, medians."""

from __future__ import annotations

import statistics
import sys
import time

import torch

from azq import games
from azq.config import InferenceConfig, NetworkConfig
from azq.inference.device.model import random_observations
from azq.inference.device.native import NativeForward, kernel_for
from azq.inference.device.placement import place
from azq.nets import NetSpec, build
from azq.nets.residual import ResNet

BOARDS: tuple[tuple[str, dict[str, int]], ...] = (
    ("connect_four", {}),
    ("gomoku", {"size": 9}),
    ("gomoku", {"size": 15}),
    ("hex", {"size": 7}),
)
BATCH, TURNS, TURN_S = 480, 7, 0.4


def measured(name: str, params: dict[str, int]) -> str:
    """A line about one board."""
    spec = NetSpec.of(games.load(name, **params))
    packed, passes, sizes = random_observations(spec, BATCH), {}, {}
    rates: dict[str, list[float]] = {"flat": [], "global": []}
    for heads in rates:
        module = build(NetworkConfig(blocks=3, channels=32, global_heads=heads == "global"), spec, seed=1).eval()
        assert isinstance(module, ResNet)
        sizes[heads] = sum(parameter.numel() for parameter in module.parameters())
        kernel = kernel_for(module, place(InferenceConfig(device="cpu")))
        if kernel is None:
            sys.exit("no native forward pass on this CPU")
        passes[heads] = NativeForward(kernel, module, lambda: 1, quantised=True)
    for _ in range(TURNS):
        for heads, told in rates.items():
            begun, count = time.process_time(), 0
            while (spent := time.process_time() - begun) < TURN_S:
                passes[heads].launch(packed)
                count += BATCH
            told.append(count / spent)
    flat, pooled = (statistics.median(told) for told in rates.values())
    ratios = [round(other / one, 2) for one, other in zip(*rates.values(), strict=True)]
    return f"{name} {params}: flat {flat:,.0f}, global {pooled:,.0f}, ratio {pooled / flat:.2f} {ratios}, parameters {sizes}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for board in BOARDS:
        sys.stdout.write(measured(*board) + "\n")
        sys.stdout.flush()
