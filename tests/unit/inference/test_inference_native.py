"""The compiled forward pass against the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from inference_doubles import observations

from azq.config import InferenceConfig, NetworkConfig
from azq.errors import ConfigError
from azq.inference.device import native
from azq.inference.device.placement import Placement, place
from azq.nets import NetSpec, build, unpack
from azq.nets.device import has_int8
from azq.nets.network import pooled
from azq.nets.residual import POLICY_CHANNELS, GlobalResNet

CPU = Placement(torch.device("cpu"), torch.bfloat16, 1)
_nn: Any = vars(native)["_nn"]  # None where azq was built without it
needs_it = pytest.mark.skipif(_nn is None or not _nn.supported(), reason="azq._nn or the CPU's AVX512-BF16 is missing")

SHAPES = [
    (NetSpec(3, 6, 7, 0, 7, 1), 3, 32),
    (NetSpec(3, 6, 7, 0, 7, 1), 1, 48),
    (NetSpec(2, 3, 3, 0, 9, 1), 2, 16),
    (NetSpec(5, 8, 8, 0, 65, 1), 1, 64),
    (NetSpec(1, 1, 9, 0, 33, 4), 2, 80),
    (NetSpec(4, 2, 5, 0, 17, 2), 1, 20),
    (NetSpec(7, 16, 16, 0, 3, 1), 1, 24),
    (NetSpec(3, 4, 4, 0, 4, 1), 1, 144),
    (NetSpec(3, 9, 9, 0, 81, 1, action_layout="cells"), 2, 32),  # with layouts: global heads
    (NetSpec(3, 6, 6, 0, 37, 1, action_layout="cells"), 1, 16),
    (NetSpec(2, 6, 7, 0, 7, 1, action_layout="columns"), 1, 48),
    (NetSpec(2, 3, 4, 0, 60, 2, action_layout="columns"), 1, 20),
    (NetSpec(1, 2, 3, 0, 125, 1, action_layout="cells"), 1, 16),  # twenty boards of actions, and five that lie nowhere
]


def network(spec, blocks, channels):
    module = build(NetworkConfig(blocks=blocks, channels=channels, global_heads=bool(spec.action_layout)), spec, seed=1).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
    return module


@needs_it
@pytest.mark.parametrize(("spec", "blocks", "channels"), SHAPES)
def test_it_agrees_with_float32_as_well_as_torchs_bfloat16_does(spec, blocks, channels):
    torch.set_num_threads(1)
    module, packed = network(spec, blocks, channels), observations(53, spec=spec)
    logits, values = native.NativeForward(module, lambda: 1).launch(packed).wait()
    with torch.inference_mode():
        inputs = unpack(torch.from_numpy(packed), spec)
        exact_logits, exact_values = (output.numpy() for output in module(*inputs))
        rough_logits, rough_values = (output.numpy() for output in module.trunk_to(torch.bfloat16)(*inputs))
    assert exact_logits.std() > 0.01
    for got, exact, rough in ((logits, exact_logits, rough_logits), (values, exact_values, rough_values)):
        assert got.shape == exact.shape
        assert np.abs(got - exact).max() <= 2 * np.abs(rough - exact).max() + 2e-3 * np.abs(exact).max() + 1e-4


def in_bytes(x, conv):
    """What int8 is to compute: weights rounded with a scale an output, activations with a scale a position, sums exact."""
    scale = conv.weight.abs().amax((1, 2, 3)) / 127
    worth = x.amax((1, 2, 3), keepdim=True) / 255
    weights = (conv.weight / scale[:, None, None, None]).round()
    sums = F.conv2d((x / worth).nan_to_num().round().double(), weights.double(), padding=1)
    return (sums * scale[None, :, None, None] * worth).float() + conv.bias[None, :, None, None]


def oracle_in_bytes(module, packed):
    def relu(x):
        return F.relu(x).bfloat16().float()

    def rounded(layer):
        return layer.weight.bfloat16().float()

    with torch.inference_mode():
        x = unpack(torch.from_numpy(packed), module.spec)[0].float()
        x = relu(F.conv2d(x, rounded(module.stem), module.stem.bias, padding=1))
        for block in module.blocks:
            x = relu(x + in_bytes(relu(in_bytes(x, block.a)), block.b))
        x = relu(F.conv2d(x, rounded(module.squeeze), module.squeeze.bias))
        if isinstance(module, GlobalResNet):
            means = pooled(x[:, POLICY_CHANNELS:]).bfloat16().float()
            hidden = relu(F.linear(means, rounded(module.value_hidden), module.value_hidden.bias))
            return module.policy(x[:, :POLICY_CHANNELS]).numpy(), torch.tanh(
                F.linear(hidden, rounded(module.value), module.value.bias)
            ).numpy()
        policy, value = x[:, :POLICY_CHANNELS].flatten(1), x[:, POLICY_CHANNELS:].flatten(1)
        hidden = relu(F.linear(value, rounded(module.value_hidden), module.value_hidden.bias))
        logits = F.linear(policy, rounded(module.policy), module.policy.bias)
        return logits.numpy(), torch.tanh(F.linear(hidden, rounded(module.value), module.value.bias)).numpy()


@needs_it
@pytest.mark.parametrize(("spec", "blocks", "channels"), SHAPES)
def test_int8_computes_what_dynamic_quantisation_says(spec, blocks, channels):
    module, packed = network(spec, blocks, channels), observations(53, spec=spec)
    packed[5] = 0  # a stem of its bias alone
    got = native.NativeForward(module, lambda: 1, int8=True).launch(packed).wait()
    with torch.inference_mode():
        exact = [output.numpy() for output in module(*unpack(torch.from_numpy(packed), spec))]
    for found, expected, free in zip(got, oracle_in_bytes(module, packed), exact, strict=True):
        spread = np.abs(free).max()
        bits = 0.015 if spec.action_layout else 0.01  # the largest of a channel is the one that rounding raised most
        assert np.abs(found - expected).max() <= bits * spread, "only the last bits of bfloat16 may differ"
        assert 0 < np.abs(found - free).mean() <= 0.02 * spread


@needs_it
def test_a_position_without_any_activation_is_its_biases():
    spec, blocks, channels = SHAPES[0]
    module = network(spec, blocks, channels)
    with torch.no_grad():
        module.stem.weight.zero_()
        module.stem.bias.fill_(-1.0)
    packed = observations(3, spec=spec)
    with torch.inference_mode():
        exact = [output.numpy() for output in module(*unpack(torch.from_numpy(packed), spec))]
    for found, expected in zip(native.NativeForward(module, lambda: 1, int8=True).launch(packed).wait(), exact, strict=True):
        assert np.allclose(found, expected, atol=0.02)


@needs_it
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[9]])
def test_an_evaluation_depends_on_neither_batch_nor_threads(shape, int8):
    spec, blocks, channels = shape
    module, packed = network(spec, blocks, channels), observations(200, spec=spec)
    whole = native.NativeForward(module, lambda: 1, int8=int8).launch(packed).wait()
    threaded = native.NativeForward(module, lambda: 3, int8=int8).launch(packed).wait()
    assert all(np.array_equal(one.view(np.uint16), other.view(np.uint16)) for one, other in zip(whole, threaded, strict=True))
    alone = native.NativeForward(module, lambda: 1, int8=int8)
    for start, count in ((0, 1), (7, 5), (20, 24), (33, 60), (199, 1)):
        for part, all_of_it in zip(alone.launch(packed[start : start + count]).wait(), whole, strict=True):
            assert np.array_equal(part.view(np.uint16), all_of_it[start : start + count].view(np.uint16))


@needs_it
def test_refresh_takes_the_modules_new_weights():
    spec, blocks, channels = SHAPES[2]
    module, packed = network(spec, blocks, channels), observations(9, spec=spec)
    forward = native.NativeForward(module, lambda: 1)
    before = forward.launch(packed).wait()[0]
    with torch.no_grad():
        module.policy.bias += 1.0
    assert np.array_equal(forward.launch(packed).wait()[0], before)
    forward.refresh()
    assert np.allclose(forward.launch(packed).wait()[0], before + 1.0, atol=0.01)


@needs_it
def test_it_refuses_what_it_cannot_take():
    net = _nn.ResNet(
        planes=3, rows=6, cols=7, actions=7, values=1, blocks=1, channels=16, policy_channels=16, value_channels=8, value_hidden=64
    )
    packed, logits, values = np.zeros((2, 16), np.uint8), np.zeros((2, 7), np.uint16), np.zeros((2, 1), np.uint16)
    with pytest.raises(RuntimeError, match="no weights"):
        net.forward(packed, logits, values, 1)
    with pytest.raises(ValueError, match="too few tensors"):
        net.load([np.zeros((16, 3, 3, 3), np.float32)])
    with pytest.raises(ValueError, match="another size"):
        net.load([np.zeros(4, np.float32)] * 20)
    module = network(NetSpec(3, 6, 7, 0, 7, 1), 1, 16)
    net.load([tensor for layer in native._layers(module) for tensor in native._arrays(layer)])
    for arrays in ((packed[:, :15].copy(), logits, values), (packed, logits[:1], values), (packed, logits, np.zeros((2, 2), np.uint16))):
        with pytest.raises(ValueError, match="other shapes"):
            net.forward(*arrays, 1)
    head = {"policy_channels": 16, "value_channels": 8, "value_hidden": 64}
    with pytest.raises(ValueError, match="fewer actions"):
        _nn.ResNet(planes=3, rows=6, cols=7, actions=7, values=1, blocks=1, channels=16, action_planes=1, **head)
    with pytest.raises(ValueError, match="not supported"):
        _nn.ResNet(
            planes=1, rows=17, cols=17, actions=7, values=1, blocks=1, channels=16, policy_channels=16, value_channels=8, value_hidden=64
        )


def test_where_it_is_used():
    config = InferenceConfig(device="cpu")
    assert config.precision == "auto"
    module = network(*SHAPES[0])
    flags = frozenset({"avx512_bf16", "avx512_vnni", "avx512bw", "avx512vl", "avx512dq"})
    there = _nn is not None and _nn.supported()
    assert native.suits(module, CPU, flags) == there
    assert not native.suits(module, CPU, flags | {"amx_bf16"})
    assert not native.suits(module, CPU, frozenset())
    assert not native.suits(module, Placement(torch.device("cpu"), torch.float32, 1), flags)
    assert not native.suits(build(NetworkConfig(kind="mlp"), SHAPES[0][0]), CPU, flags)
    assert not native.suits(build(NetworkConfig(blocks=1), NetSpec(3, 6, 7, 2, 7, 1)), CPU, flags)


def test_int8_is_taken_where_the_cpu_has_it_and_refused_elsewhere(monkeypatch):
    flags = frozenset({"avx512_bf16", "avx512_vnni"})
    assert has_int8(flags)
    assert not has_int8(frozenset({"avx512_bf16"}))
    assert not has_int8(flags | {"amx_bf16"})
    monkeypatch.setattr("azq.inference.device.placement.cpu_flags", lambda: flags)
    assert place(InferenceConfig(device="cpu")).int8
    assert place(InferenceConfig(device="cpu", precision="int8")).int8
    assert not place(InferenceConfig(device="cpu", precision="bfloat16")).int8
    monkeypatch.setattr("azq.inference.device.placement.cpu_flags", frozenset)
    assert not place(InferenceConfig(device="cpu")).int8
    with pytest.raises(ConfigError, match="AVX512-VNNI"):
        place(InferenceConfig(device="cpu", precision="int8"))
