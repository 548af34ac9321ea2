"""Ways to run one network on a device, each in one CUDA graph where the device has graphs: evaluations per second of each, a line of JSON.

    python ops/bench/gpu_network.py [--device cuda:0] [--blocks 5] [--channels 128] [--batch 8192] [--seconds 3]

Ways: `plain` (as torch runs it, channels last), `compiled` (torch.compile for this one size), `fused` (convolutions of cuDNN with bias, sum
and relu in one kernel). A way that fails is named with its reason, and the next one goes on.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from azq import games
from azq.config import NetworkConfig
from azq.inference.device.engine import fastest_layout
from azq.nets import NetSpec, build, unpack
from azq.nets.residual import POLICY_CHANNELS, ResNet

WARM_UPS = 5
_SAME = ((1, 1), (1, 1), (1, 1), 1)  # stride, padding, dilation, groups of a 3x3 convolution that keeps shapes


def main() -> None:
    """Measures all ways in turn, the fastest of three rounds each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    device, spec = torch.device(given.device), NetSpec.of(games.load("connect_four"))
    torch.backends.cudnn.benchmark = True
    module = build(NetworkConfig(blocks=given.blocks, channels=given.channels), spec, seed=0).eval().requires_grad_(False)
    assert isinstance(module, ResNet)
    for block in module.blocks:  # they start at zero, and kernels draw less power on zeros
        torch.nn.init.kaiming_normal_(block.get_parameter("b.weight"))
    fastest_layout(module.trunk_to(torch.bfloat16).to(device))
    packed = torch.randint(0, 256, (given.batch, spec.packed_size), dtype=torch.uint8, device=device)
    ways: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
        "plain": module,
        "compiled": torch.compile(copy.deepcopy(module), dynamic=False),
        "fused": fused(module),
    }
    for name, forward in ways.items():
        figures = {"way": name, "blocks": given.blocks, "channels": given.channels, "batch": given.batch}
        try:
            rate = rate_of(lambda forward=forward: forward(*unpack(packed, spec)), device, given.batch, given.seconds)  # type: ignore[misc]
            say({**figures, "evaluations_per_s": round(rate)})
        except (RuntimeError, AttributeError) as error:
            say({**figures, "failed": str(error).splitlines()[0][:300]})


def fused(module: ResNet) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The same network with a kernel a convolution (cuDNN); heads in the trunk's precision."""
    blocks = [tuple(block.get_parameter(name) for name in ("a.weight", "a.bias", "b.weight", "b.bias")) for block in module.blocks]
    policy_head, value_head = (copy.deepcopy(head).to(torch.bfloat16) for head in (module.policy, module.value))
    hidden = copy.deepcopy(module.value_hidden).to(torch.bfloat16)

    def forward(planes: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        x = planes.to(torch.bfloat16, memory_format=torch.channels_last)
        x = torch.cudnn_convolution_relu(x, module.stem.weight, module.stem.bias, *_SAME)
        for weight, bias, last_weight, last_bias in blocks:
            inner = torch.cudnn_convolution_relu(x, weight, bias, *_SAME)
            x = torch.cudnn_convolution_add_relu(inner, last_weight, x, 1.0, last_bias, *_SAME)
        x = torch.cudnn_convolution_relu(x, module.squeeze.weight, module.squeeze.bias, (1, 1), (0, 0), (1, 1), 1)
        policy, value = x[:, :POLICY_CHANNELS].flatten(1), x[:, POLICY_CHANNELS:].flatten(1)
        return policy_head(policy).float(), torch.tanh(value_head(F.relu(hidden(value))).float())

    return forward


def rate_of(run: Callable[[], object], device: torch.device, batch: int, seconds: float) -> float:
    """Evaluations per second: the best of three rounds, in a graph on CUDA."""
    with torch.inference_mode():
        for _ in range(WARM_UPS):
            run()
        if device.type == "cuda":
            run = captured(run)
        return max(one_round(run, device, batch, seconds / 3) for _ in range(3))


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """A replay of what `run` launches."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def one_round(run: Callable[[], object], device: torch.device, batch: int, seconds: float) -> float:
    """Evaluations per second of one round."""
    done, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        for _ in range(10 if device.type == "cuda" else 1):
            run()
            done += batch
        if device.type == "cuda":
            torch.cuda.synchronize()
    return done / (time.perf_counter() - began_s)


def say(figures: dict[str, object]) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
