"""Networks and unpacking."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from azq import games
from azq.config import NetworkConfig
from azq.errors import ConfigError
from azq.nets import NetSpec, build, unpack, unpack_bits
from azq.nets.network import SCALAR_SCALE

SPECS = [NetSpec(3, 6, 7, 0, 7, 1), NetSpec(2, 3, 3, 4, 9, 1), NetSpec(1, 1, 26, 6, 5, 4)]
specs = st.builds(
    NetSpec,
    planes=st.integers(0, 5),
    rows=st.integers(1, 8),
    cols=st.integers(1, 9),
    scalars=st.integers(0, 5),
    num_actions=st.just(3),
    value_size=st.just(1),
)


def test_spec_of_a_game():
    spec = NetSpec.of(games.load("connect_four"))
    assert spec == NetSpec(2, 6, 7, 0, 7, 1, action_layout="columns", has_margin=spec.has_margin)
    assert (spec.cells, spec.plane_bytes, spec.packed_size) == (42, 11, 11)


@settings(max_examples=60, deadline=None)
@given(specs, st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_unpack_inverts_numpys_packing(spec, batch, seed):
    rng = np.random.default_rng(seed)
    planes = rng.integers(0, 2, (batch, spec.planes, spec.rows, spec.cols), np.uint8)
    scalars = rng.integers(-128, 128, (batch, spec.scalars), np.int8)
    bits = np.packbits(planes.reshape(batch, -1), axis=1, bitorder="little")
    packed = np.concatenate([bits, scalars.view(np.uint8)], axis=1)
    assert packed.shape == (batch, spec.packed_size)
    got_planes, got_scalars = unpack(torch.from_numpy(packed), spec)
    assert np.array_equal(got_planes.numpy(), planes.astype(np.float32))
    assert np.array_equal(got_scalars.numpy(), scalars.astype(np.float32) * np.float32(SCALAR_SCALE))


def test_unpack_refuses_another_width():
    with pytest.raises(ValueError, match="of 15 bytes, the network takes 16"):
        unpack(torch.zeros((2, 15), dtype=torch.uint8), SPECS[0])


@pytest.mark.parametrize(("size", "count"), [(1, 1), (1, 8), (3, 17), (11, 84), (20, 151)])
@pytest.mark.parametrize("as_on_devices", [False, True])
def test_bits_come_lowest_first_and_no_more_than_asked_for(size, count, as_on_devices, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: as_on_devices)
    rows = np.random.default_rng(size).integers(0, 256, (5, size + 2), dtype=np.uint8)
    found = unpack_bits(torch.from_numpy(rows)[:, :size], count)  # a slice: its rows do not touch
    assert found.dtype == torch.uint8
    assert found.tolist() == [[row[bit // 8] >> (bit % 8) & 1 for bit in range(count)] for row in rows.tolist()]


def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_alone():
    config = NetworkConfig(blocks=1, channels=8)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (build(config, SPECS[0], seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_a_resnet_needs_planes():
    with pytest.raises(ConfigError, match=r"set network\.kind = 'mlp'"):
        build(NetworkConfig(), NetSpec(0, 1, 1, 5, 3, 1))


def test_deep_networks_start_as_shallow_ones():
    deep = build(NetworkConfig(blocks=30, channels=16), SPECS[0], seed=0)
    packed = torch.randint(0, 256, (8, 16), dtype=torch.uint8)
    planes, _ = unpack(packed, SPECS[0])
    first = torch.relu(deep.get_submodule("stem")(planes))
    x = first
    for block in deep.get_submodule("blocks").children():
        x = block(x)
    assert torch.allclose(x, first)


@pytest.mark.parametrize("kind", ["resnet", "mlp", "transformer"])
def test_bfloat16_trunk_is_close_and_heads_stay_float32(kind):
    spec = SPECS[1]
    module = build(NetworkConfig(kind=kind, blocks=2, channels=16), spec, seed=0)
    with torch.no_grad():
        module.policy.weight.normal_(0, 0.05)
        module.value.weight.normal_(0, 0.05)
    inputs = unpack(torch.randint(0, 256, (32, spec.packed_size), dtype=torch.uint8), spec)
    with torch.inference_mode():
        exact = module(*inputs)
        logits, values = module.trunk_to(torch.bfloat16)(*inputs)
    assert logits.dtype == values.dtype == torch.float32
    assert torch.allclose(logits, exact[0], atol=0.1)
    assert torch.allclose(values, exact[1], atol=0.1)
