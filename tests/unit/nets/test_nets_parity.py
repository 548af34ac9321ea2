"""Whether an observation's bits are odd in number: what convolutions alone cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sharp_nets import shaken
from torch import Tensor

from azq import games
from azq.config import NetworkConfig
from azq.nets import NetSpec, Network, WeightsMeta, build, restore, to_bytes, unpack
from azq.nets.residual import with_parity

SPEC = NetSpec(2, 5, 6, 0, 3, 1)
SMALL = NetworkConfig(blocks=1, channels=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_more_plane_says_odd_or_even_however_many_bits(dtype: torch.dtype) -> None:
    bits = np.random.default_rng(1).integers(0, 2, (40, 3, 15, 15))  # some 340 of 675: more than bfloat16 counts to
    found = with_parity(torch.from_numpy(bits).to(dtype))
    assert found.shape == (40, 4, 15, 15)
    assert found.dtype == dtype
    assert np.array_equal(found[:, :3].float().numpy(), bits)
    odd = bits.sum((1, 2, 3)) % 2
    assert 0 < odd.sum() < 40
    assert np.array_equal(found[:, 3].float().numpy(), np.broadcast_to(odd[:, None, None], (40, 15, 15)))


def error_after_training(module: Network) -> float:
    """Mean squared error of the value, on positions that were not trained on, where it is 1 for an odd number of bits and else -1."""
    optimiser = torch.optim.AdamW(module.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)

    def drawn() -> tuple[Tensor, Tensor]:
        planes = torch.randint(0, 2, (128, SPEC.planes, SPEC.rows, SPEC.cols), generator=generator).float()
        return planes, 2.0 * (planes.sum((1, 2, 3)) % 2) - 1.0

    def error(planes: Tensor, wanted: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(module(planes, torch.zeros(len(planes), 0))[1][:, 0], wanted)

    for _ in range(60):
        optimiser.zero_grad()
        error(*drawn()).backward()
        optimiser.step()
    with torch.inference_mode():
        return float(error(*drawn()))


def test_a_network_learns_it_with_the_plane_and_not_without() -> None:
    assert error_after_training(build(SMALL.model_copy(update={"parity": True}), SPEC, seed=0)) < 0.1
    assert error_after_training(build(SMALL, SPEC, seed=0)) > 0.8


@pytest.mark.parametrize("heads", [False, True], ids=["flat", "global"])
def test_weights_say_so_and_restore(heads: bool) -> None:
    config, game = NetworkConfig(blocks=1, channels=8, parity=True, global_heads=heads), games.load("connect_four")
    module = shaken(config, game)
    again = restore(to_bytes(module, WeightsMeta("connect_four", network=config.description())), game)
    packed = torch.from_numpy(game.new_initial_state().packed_observation()[None])
    for one, other in zip(module(*unpack(packed, module.spec)), again(*unpack(packed, again.spec)), strict=True):
        torch.testing.assert_close(one, other)
