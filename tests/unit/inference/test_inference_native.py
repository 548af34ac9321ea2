"""The compiled forward pass against the plain one."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from inference_doubles import observations

from azq.config import InferenceConfig, NetworkConfig
from azq.errors import ConfigError
from azq.inference.device import native
from azq.nets import NetSpec, build, unpack
from azq.nets.device import Placement, cpu_flags, place, whole_numbers
from azq.nets.network import pooled
from azq.nets.residual import POLICY_CHANNELS, GlobalResNet, with_parity


@dataclass(frozen=True)
class Kind:
    """One way that the forward pass is compiled, and the numbers that it multiplies."""

    name: str
    kernel: ModuleType | None  # None: not built
    dtype: torch.dtype
    flags: frozenset[str]  # of a CPU for it
    most_weight: int
    most_activation: int  # where sums have room

    def rounded(self, x):
        return x.to(self.dtype).float()

    def most(self, products):
        return min(self.most_activation, (2**31 - 1) // (products * self.most_weight))

    def forward(self, module, threads=1, *, quantised=False):
        return native.NativeForward(self.kernel, module, lambda: threads, quantised=quantised)


AVX512 = Kind(
    "int8", native.AVX512, torch.bfloat16, frozenset({"avx512_bf16", "avx512_vnni", "avx512bw", "avx512vl", "avx512dq"}), 127, 255
)
AVX2 = Kind("int16", native.AVX2, torch.float32, frozenset({"avx2", "fma", "f16c"}), 1023, 4095)
KINDS = [
    pytest.param(
        kind, id=kind.name, marks=pytest.mark.skipif(kind.kernel is None or not kind.kernel.supported(), reason="not built, or another CPU")
    )
    for kind in (AVX512, AVX2)
]
of_each_kind = pytest.mark.parametrize("kind", KINDS)


def placed(kind, whole=None, dtype=None):
    return Placement(torch.device("cpu"), dtype or kind.dtype, 1, whole=kind.name if whole is None else whole)


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


def network(spec, blocks, channels, *, parity=False):
    config = NetworkConfig(blocks=blocks, channels=channels, global_heads=bool(spec.action_layout), parity=parity)
    module = build(config, spec, seed=1).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
    return module


@of_each_kind
@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
@pytest.mark.parametrize(("spec", "blocks", "channels"), SHAPES)
def test_it_agrees_with_float32_as_well_as_torchs_bfloat16_does(kind, spec, blocks, channels, parity):
    module, packed = network(spec, blocks, channels, parity=parity), observations(53, spec=spec)
    logits, values = kind.forward(module).launch(packed).wait()
    with torch.inference_mode():
        inputs = unpack(torch.from_numpy(packed), spec)
        exact_logits, exact_values = (output.numpy() for output in module(*inputs))
        rough_logits, rough_values = (output.numpy() for output in module.trunk_to(torch.bfloat16)(*inputs))
    assert exact_logits.std() > 0.01
    for got, exact, rough in ((logits, exact_logits, rough_logits), (values, exact_values, rough_values)):
        assert got.shape == exact.shape
        assert np.abs(got - exact).max() <= 2 * np.abs(rough - exact).max() + 2e-3 * np.abs(exact).max() + 1e-4


def in_whole_numbers(kind, x, conv):
    """What is to be computed: weights rounded with a scale an output, activations with a scale a position, sums exact."""
    scale = conv.weight.abs().amax((1, 2, 3)) / kind.most_weight
    worth = x.amax((1, 2, 3), keepdim=True) / kind.most(9 * x.shape[1])
    weights = (conv.weight / scale[:, None, None, None]).round()
    sums = F.conv2d((x / worth).nan_to_num().round().double(), weights.double(), padding=1)
    return (sums * scale[None, :, None, None] * worth).float() + conv.bias[None, :, None, None]


def oracle(kind, module, packed):
    def relu(x):
        return kind.rounded(F.relu(x))

    def rounded(layer):
        return kind.rounded(layer.weight)

    with torch.inference_mode():
        x = unpack(torch.from_numpy(packed), module.spec)[0].float()
        x = with_parity(x) if module.parity else x
        x = relu(F.conv2d(x, rounded(module.stem), module.stem.bias, padding=1))
        for block in module.blocks:
            x = relu(x + in_whole_numbers(kind, relu(in_whole_numbers(kind, x, block.a)), block.b))
        x = relu(F.conv2d(x, rounded(module.squeeze), module.squeeze.bias))
        if isinstance(module, GlobalResNet):
            means = kind.rounded(pooled(x[:, POLICY_CHANNELS:]))
            hidden = relu(F.linear(means, rounded(module.value_hidden), module.value_hidden.bias))
            return module.policy(x[:, :POLICY_CHANNELS]).numpy(), torch.tanh(
                F.linear(hidden, rounded(module.value), module.value.bias)
            ).numpy()
        policy, value = x[:, :POLICY_CHANNELS].flatten(1), x[:, POLICY_CHANNELS:].flatten(1)
        hidden = relu(F.linear(value, rounded(module.value_hidden), module.value_hidden.bias))
        logits = F.linear(policy, rounded(module.policy), module.policy.bias)
        return logits.numpy(), torch.tanh(F.linear(hidden, rounded(module.value), module.value.bias)).numpy()


@of_each_kind
@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
@pytest.mark.parametrize(("spec", "blocks", "channels"), SHAPES)
def test_quantised_it_computes_what_dynamic_quantisation_says(kind, spec, blocks, channels, parity):
    module, packed = network(spec, blocks, channels, parity=parity), observations(53, spec=spec)
    packed[5] = 0  # a stem of its bias alone
    got = kind.forward(module, quantised=True).launch(packed).wait()
    with torch.inference_mode():
        exact = [output.numpy() for output in module(*unpack(torch.from_numpy(packed), spec))]
    for found, expected, free in zip(got, oracle(kind, module, packed), exact, strict=True):
        spread = np.abs(free).max()
        bits = 0.015 if spec.action_layout or parity else 0.01  # the largest of a channel is the one that rounding raised most
        assert np.abs(found - expected).max() <= bits * spread, "only the last bits may differ"
        assert 0 < np.abs(found - free).mean() <= 0.02 * spread


@of_each_kind
def test_the_largest_sums_do_not_overflow(kind):
    spec, channels = NetSpec(1, 3, 3, 0, 9, 1), 256
    module = network(spec, 1, channels)
    with torch.no_grad():  # a block whose every product is the largest there is, and of one sign
        module.stem.weight.fill_(1.0)
        module.stem.bias.fill_(1.0)
        for conv in (module.blocks[0].a, module.blocks[0].b):
            conv.weight.fill_(1e-3)
            conv.bias.zero_()
    packed = np.full((2, 2), 255, np.uint8)
    got = kind.forward(module, quantised=True).launch(packed).wait()
    with torch.inference_mode():
        exact = [output.numpy() for output in module(*unpack(torch.from_numpy(packed), spec))]
    for found, free in zip(got, exact, strict=True):
        assert np.abs(found - free).max() <= 0.02 * np.abs(free).max()


@of_each_kind
def test_a_position_without_any_activation_is_its_biases(kind):
    spec, blocks, channels = SHAPES[0]
    module = network(spec, blocks, channels)
    with torch.no_grad():
        module.stem.weight.zero_()
        module.stem.bias.fill_(-1.0)
    packed = observations(3, spec=spec)
    with torch.inference_mode():
        exact = [output.numpy() for output in module(*unpack(torch.from_numpy(packed), spec))]
    for found, expected in zip(kind.forward(module, quantised=True).launch(packed).wait(), exact, strict=True):
        assert np.allclose(found, expected, atol=0.02)


@of_each_kind
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[9]])
def test_an_evaluation_depends_on_neither_batch_nor_threads(kind, shape, quantised):
    spec, blocks, channels = shape
    module, packed = network(spec, blocks, channels), observations(200, spec=spec)
    whole = kind.forward(module, quantised=quantised).launch(packed).wait()
    threaded = kind.forward(module, 3, quantised=quantised).launch(packed).wait()
    assert all(np.array_equal(one.view(np.uint16), other.view(np.uint16)) for one, other in zip(whole, threaded, strict=True))
    alone = kind.forward(module, quantised=quantised)
    for start, count in ((0, 1), (7, 5), (20, 24), (33, 60), (199, 1)):
        for part, all_of_it in zip(alone.launch(packed[start : start + count]).wait(), whole, strict=True):
            assert np.array_equal(part.view(np.uint16), all_of_it[start : start + count].view(np.uint16))


@of_each_kind
def test_refresh_takes_the_modules_new_weights(kind):
    spec, blocks, channels = SHAPES[2]
    module, packed = network(spec, blocks, channels), observations(9, spec=spec)
    forward = kind.forward(module)
    before = forward.launch(packed).wait()[0]
    with torch.no_grad():
        module.policy.bias += 1.0
    assert np.array_equal(forward.launch(packed).wait()[0], before)
    forward.refresh()
    assert np.allclose(forward.launch(packed).wait()[0], before + 1.0, atol=0.01)


@of_each_kind
def test_it_refuses_what_it_cannot_take(kind):
    net = kind.kernel.ResNet(
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
        kind.kernel.ResNet(planes=3, rows=6, cols=7, actions=7, values=1, blocks=1, channels=16, action_planes=1, **head)
    with pytest.raises(ValueError, match="not supported"):
        kind.kernel.ResNet(
            planes=1, rows=17, cols=17, actions=7, values=1, blocks=1, channels=16, policy_channels=16, value_channels=8, value_hidden=64
        )


@of_each_kind
def test_where_it_is_used(kind):
    module, flags = network(*SHAPES[0]), kind.flags
    assert native.kernel_for(module, placed(kind), flags) is kind.kernel
    assert native.kernel_for(module, placed(kind), frozenset()) is (kind.kernel if kind is AVX2 else None)
    assert native.kernel_for(module, placed(AVX512, whole="", dtype=torch.float32), flags) is None, "float32 by name stays torch's"
    assert native.kernel_for(build(NetworkConfig(kind="mlp"), SHAPES[0][0]), placed(kind), flags) is None
    for spec in (NetSpec(3, 6, 7, 2, 7, 1), NetSpec(4, 1, 26, 0, 9, 1, (1.0, -1.0))):  # scalars, outcomes
        assert native.kernel_for(build(NetworkConfig(blocks=1), spec), placed(kind), flags) is None


@pytest.mark.parametrize("kind", [AVX512, AVX2])
def test_the_cpu_says_of_itself_what_the_system_says_of_it(kind):
    assert kind.kernel is None or kind.kernel.supported() == (kind.flags <= cpu_flags())


def test_torch_does_the_work_where_it_is_not_built(monkeypatch):
    monkeypatch.setattr(native, "AVX512", None)
    monkeypatch.setattr(native, "AVX2", None)
    for kind in (AVX512, AVX2):
        assert native.kernel_for(network(*SHAPES[0]), placed(kind), kind.flags) is None


def test_bfloat16_by_name_is_native_too_where_the_cpu_multiplies_it():
    there = native.AVX512 is not None and native.AVX512.supported()
    found = native.kernel_for(network(*SHAPES[0]), placed(AVX512, whole=""), AVX512.flags)
    assert found is (native.AVX512 if there else None)
    assert native.kernel_for(network(*SHAPES[0]), placed(AVX512), AVX512.flags | {"amx_bf16"}) is None


def test_what_a_cpu_multiplies_by_its_flags():
    assert whole_numbers(AVX512.flags) == whole_numbers(AVX512.flags | AVX2.flags | {"avx512f"}) == "int8"
    assert whole_numbers(AVX2.flags) == "int16"
    for neither in (frozenset[str](), frozenset({"avx2", "fma"}), AVX2.flags | {"avx512f"}, AVX512.flags | AVX2.flags | {"amx_bf16"}):
        assert whole_numbers(neither) == ""


@pytest.mark.parametrize("kind", [AVX512, AVX2])
def test_whole_numbers_are_taken_where_the_cpu_has_them_and_refused_elsewhere(monkeypatch, kind):
    monkeypatch.setattr("azq.nets.device.cpu_flags", lambda: kind.flags)
    assert place(InferenceConfig(device="cpu")).whole == kind.name
    assert place(InferenceConfig(device="cpu")).precision == kind.name
    assert place(InferenceConfig(device="cpu", precision=kind.name)).whole == kind.name
    for other in ("bfloat16", "float32"):
        assert place(InferenceConfig(device="cpu", precision=other)).whole == ""
        assert place(InferenceConfig(device="cpu", precision=other)).precision == other
    monkeypatch.setattr("azq.nets.device.cpu_flags", frozenset)
    assert place(InferenceConfig(device="cpu")).whole == ""
    with pytest.raises(ConfigError, match="AVX512-VNNI" if kind is AVX512 else "AVX2"):
        place(InferenceConfig(device="cpu", precision=kind.name))
