"""The compiled forward pass: what its description says, in the same bits on every kind of CPU, near the float32 network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inference_doubles import observations
from sharp_nets import sharp_bytes
from whole_networks import GOLDEN, hash_of, positions_of, shipped

from azq import games
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import ConfigError
from azq.inference.device import native
from azq.nets import NetSpec, build, restore, unpack
from azq.nets.device import Placement, cpu_flags, place, whole_numbers
from azq.nets.network import PlaceLinear
from azq.nets.residual import POLICY_CHANNELS, GlobalResNet, with_parity
from azq.nets.whole import MAGIC, has_whole_form, to_whole
from azq.parts.volunteers.model_maker import probe_positions

AVX2 = frozenset({"avx2", "fma", "f16c"})
AVX512 = AVX2 | {"avx512_vnni", "avx512f", "avx512bw", "avx512vl", "avx512dq"}
KERNELS = [
    pytest.param(kernel, id=name, marks=pytest.mark.skipif(kernel is None or not kernel.supported(), reason="not built, or another CPU"))
    for name, kernel in (("avx512", native.AVX512), ("avx2", native.AVX2), ("plain", native.PLAIN))
]
on_each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def evaluate(kernel, module, packed, threads=1):
    return native.NativeForward(kernel, module, lambda: threads).launch(packed).wait()


def exact(module, packed):
    with torch.inference_mode():
        return [output.numpy() for output in module(*unpack(torch.from_numpy(packed), module.spec))]


def same_bits(one, other):
    return all(np.array_equal(a.view(np.uint16), b.view(np.uint16)) for a, b in zip(one, other, strict=True))


SHAPES = [
    (NetSpec(3, 6, 7, 0, 7, 1), 3, 32),
    (NetSpec(3, 6, 7, 0, 7, 1), 1, 48),
    (NetSpec(2, 3, 3, 0, 9, 1), 2, 16),
    (NetSpec(5, 8, 8, 0, 65, 1), 1, 64),
    (NetSpec(1, 1, 9, 0, 33, 4), 2, 80),
    (NetSpec(2, 5, 11, 0, 9, 1), 2, 36),
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


def whole(x, most):
    """A position's numbers as whole ones, the largest of them, and what 1 is worth."""
    largest = x.reshape(len(x), -1).max(1).astype(np.float32)
    factor = np.where(largest > 0, np.float32(most) / np.where(largest > 0, largest, 1), np.float32(0)).astype(np.float32)
    over = (len(x),) + (1,) * (x.ndim - 1)
    return np.rint(x * factor.reshape(over)), most, (largest / np.float32(most)).reshape(over)


def linear(layer, x, most, worth, *, first=False, bytewise=False):
    """sum * (scale * worth) + bias of whole numbers `x` (B, I, ...), in float32 but for the sum, which is exact."""
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    flat = weight.reshape(len(weight), -1)
    largest = 127 if bytewise else min(32767, (2**31 - 1) // (flat.shape[1] * 128)) if first else 1023
    scale = np.abs(flat).max(1) / np.float32(largest)
    rounded = torch.from_numpy(np.rint(flat / np.where(scale > 0, scale, 1)[:, None]).reshape(weight.shape)).double()
    if isinstance(layer, torch.nn.Conv2d):
        sums = torch.nn.functional.conv2d(torch.from_numpy(x).double(), rounded, padding=weight.shape[-1] // 2).numpy()
    else:
        sums = torch.nn.functional.linear(torch.from_numpy(x).double(), rounded).numpy()
    over = (1, -1) + (1,) * (x.ndim - 2)
    return sums.astype(np.float32) * (scale.reshape(over) * np.float32(worth)) + bias.reshape(over)


def room(inputs):
    return min(4095, (2**31 - 1) // (inputs * 1023))


def oracle(module, packed):
    """Logits and values of a residual network, step by step as azq/nets/native/network.hpp says."""
    spec, relu = module.spec, lambda x: np.maximum(x, np.float32(0))
    bits = unpack(torch.from_numpy(packed), spec)[0]
    planes = (with_parity(bits) if module.parity else bits).numpy() * 16
    x = relu(linear(module.stem, planes, 0, 1 / 16, first=True))
    for block in module.blocks:
        h = relu(linear(block.a, *in_bytes(x), bytewise=True))
        x = relu(linear(block.b, *in_bytes(h), bytewise=True) + x)
    squeezed = relu(linear(module.squeeze, *in_words(x, x.shape[1])))
    if isinstance(module, GlobalResNet):
        logits, hidden = global_heads(module, squeezed)
    else:
        q, most, worth = in_words(squeezed, POLICY_CHANNELS * spec.cells)
        logits = linear(module.policy, q[:, :POLICY_CHANNELS].reshape(len(q), -1), most, worth.reshape(-1, 1))
        hidden = relu(linear(module.value_hidden, q[:, POLICY_CHANNELS:].reshape(len(q), -1), most, worth.reshape(-1, 1)))
    return logits.astype(np.float16), np.tanh(linear(module.value, *in_words(hidden, 64)))


def in_bytes(x):
    return whole(x, 255)


def in_words(x, inputs):
    return whole(x, room(inputs))


def global_heads(module, squeezed):
    spec, policy = module.spec, module.policy
    assert isinstance(policy, PlaceLinear)
    q, most, worth = in_words(squeezed, POLICY_CHANNELS)
    maps = np.stack(
        [linear(plain(policy), q[:, :POLICY_CHANNELS, r, c], most, worth[:, :, 0, 0]) for r in range(spec.rows) for c in range(spec.cols)],
        2,
    )  # (B, planes, cells)
    if policy.by_column:
        share, columns = np.float32(1 / spec.rows), np.zeros((len(q), maps.shape[1], spec.cols), np.float32)
        for cell in range(spec.cells):
            columns[:, :, cell % spec.cols] += share * maps[:, :, cell]
        maps = columns
    total = np.zeros(squeezed.shape[:2], np.float32)
    for cell in range(spec.cells):
        total += squeezed[:, :, cell // spec.cols, cell % spec.cols]
    pooled = np.stack((total * np.float32(1 / spec.cells), squeezed.max((2, 3))), 2)  # (B, channels, 2)
    value_inputs = 2 * module.value_channels
    inputs = max(value_inputs, 2 * POLICY_CHANNELS) if policy.beyond is not None else value_inputs
    q, most, worth = in_words(pooled, inputs)
    hidden = np.maximum(linear(module.value_hidden, q[:, POLICY_CHANNELS:].reshape(len(q), -1), most, worth[:, :, 0]), np.float32(0))
    logits = maps.reshape(len(q), -1)
    if policy.beyond is not None:
        logits = np.concatenate((logits, linear(policy.beyond, q[:, :POLICY_CHANNELS].reshape(len(q), -1), most, worth[:, :, 0])), 1)
    return logits, hidden


def plain(layer):
    """A linear layer's own weights, without what its class does with them."""
    linear_layer = torch.nn.Linear(layer.in_features, layer.out_features)
    linear_layer.weight, linear_layer.bias = layer.weight, layer.bias
    return linear_layer


def agree(outputs, expected):
    assert np.array_equal(*(logits.view(np.uint16) for logits, _ in (outputs, expected)))
    assert np.abs(outputs[1] - expected[1]).max() <= 1e-3  # numpy's tanh, and float16


@on_each_kernel
@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
@pytest.mark.parametrize(("spec", "blocks", "channels"), SHAPES)
def test_it_computes_what_its_description_says(kernel, spec, blocks, channels, parity):
    module, packed = network(spec, blocks, channels, parity=parity), observations(53, spec=spec)
    packed[5] = 0  # a stem of its bias alone
    outputs = evaluate(kernel, module, packed)
    agree(outputs, oracle(module, packed))
    for found, free in zip(outputs, exact(module, packed), strict=True):
        assert 0 < np.abs(found - free).mean() <= 0.02 * np.abs(free).max()


@on_each_kernel
@pytest.mark.parametrize("game", GOLDEN)
def test_shipped_networks_evaluate_to_the_golden_bits(kernel, game):
    assert hash_of(evaluate(kernel, shipped(game), positions_of(game))) == GOLDEN[game]


@on_each_kernel
@pytest.mark.parametrize("kind", ["mlp", "outcomes"])
def test_perceptrons_are_near_float32(kernel, kind):
    game = games.load({"mlp": "tic_tac_toe", "outcomes": "backgammon"}[kind])
    module, packed = restore(sharp_bytes(kind), game), probe_positions(game, 60)
    assert module.spec.scalars or kind == "mlp"
    for found, free in zip(evaluate(kernel, module, packed), exact(module, packed), strict=True):
        assert np.abs(found - free).max() <= 0.005 * np.abs(free).max()


@on_each_kernel
@pytest.mark.parametrize(("channels", "sign"), [(256, torch.ones_like), (115, torch.ones_like), (116, torch.ones_like), (64, torch.sign)])
def test_the_largest_sums_do_not_overflow(kernel, channels, sign):
    """116 channels are the fewest whose sums in tiles of 4 x 4 have no room."""
    spec = NetSpec(1, 8, 8, 0, 9, 1)
    module, packed = network(spec, 1, channels), observations(40, spec=spec)
    packed[0] = 255
    with torch.no_grad():  # activations are 0 or the largest, and so are a block's weights
        module.stem.bias.zero_()
        module.stem.weight.zero_()[:, :, 1, 1] = 1.0
        for conv in (module.blocks[0].a, module.blocks[0].b):
            conv.weight.copy_(1e-3 * sign(conv.weight))
            conv.bias.zero_()
    agree(evaluate(kernel, module, packed), oracle(module, packed))


@on_each_kernel
def test_a_position_without_any_activation_is_its_biases(kernel):
    module = network(*SHAPES[0])
    with torch.no_grad():
        module.stem.weight.zero_()
        module.stem.bias.fill_(-1.0)
    packed = observations(3, spec=SHAPES[0][0])
    for found, expected in zip(evaluate(kernel, module, packed), exact(module, packed), strict=True):
        assert np.allclose(found, expected, atol=0.02)


@on_each_kernel
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[9]])
def test_an_evaluation_depends_on_neither_batch_nor_threads(kernel, shape):
    module, packed = network(*shape), observations(200, spec=shape[0])
    together = evaluate(kernel, module, packed)
    assert same_bits(evaluate(kernel, module, packed, 3), together)
    for start, count in ((0, 1), (7, 5), (20, 24), (33, 60), (199, 1)):
        part = evaluate(kernel, module, packed[start : start + count])
        assert same_bits(part, [output[start : start + count] for output in together])


@on_each_kernel
def test_refresh_takes_the_modules_new_weights(kernel):
    module, packed = network(*SHAPES[2]), observations(9, spec=SHAPES[2][0])
    forward = native.NativeForward(kernel, module, lambda: 1)
    before = forward.launch(packed).wait()[0]
    with torch.no_grad():
        module.policy.bias += 1.0
    assert np.array_equal(forward.launch(packed).wait()[0], before)
    forward.refresh()
    assert np.allclose(forward.launch(packed).wait()[0], before + 1.0, atol=0.01)


def at(description, place, number):
    """A description whose int32 at a place is another."""
    return description[:place] + np.int32(number).tobytes() + description[place + 4 :]


@on_each_kernel
def test_it_refuses_what_it_cannot_take(kernel):
    description = to_whole(network(NetSpec(3, 6, 7, 0, 7, 1), 1, 16))
    net = kernel.Network(description)
    packed, logits, values = np.zeros((2, 16), np.uint8), np.zeros((2, 7), np.uint16), np.zeros((2, 1), np.uint16)
    for arrays in ((packed[:, :15].copy(), logits, values), (packed, logits[:1], values), (packed, logits, np.zeros((2, 2), np.uint16))):
        with pytest.raises(ValueError, match="other shapes"):
            net.forward(*arrays, 1)
    stem = len(MAGIC) + 64
    wrong = {
        "no network": b"onnx" + description[4:],
        "too early": description[:-1],
        "after its end": description + bytes(4),
        "shape": at(description, 8, 17 * 17),  # rows
        "not finite": description[:-4] + np.float32(np.nan).tobytes(),
        "have no room": description[:stem] + np.int16(-32768).tobytes() + description[stem + 2 :],
    }
    for reason, data in wrong.items():
        with pytest.raises(ValueError, match=reason):
            kernel.Network(data)
    with pytest.raises(ValueError, match="too early"):
        kernel.Network(MAGIC)


def test_which_networks_have_a_form_in_whole_numbers():
    spec = SHAPES[0][0]
    assert has_whole_form(network(*SHAPES[0]))
    assert has_whole_form(build(NetworkConfig(kind="mlp"), spec))
    for more in (NetSpec(3, 6, 7, 2, 7, 1), NetSpec(4, 1, 26, 0, 9, 1, (1.0, -1.0))):  # scalars, outcomes
        assert not has_whole_form(build(NetworkConfig(blocks=1), more))
    assert not has_whole_form(build(NetworkConfig(blocks=1, channels=16), NetSpec(1, 17, 17, 0, 7, 1))), "cells"
    assert not has_whole_form(build(NetworkConfig(kind="transformer", channels=32, heads=4), spec))


def test_where_it_is_used(monkeypatch):
    module, whole_placed = network(*SHAPES[0]), Placement(torch.device("cpu"), torch.float32, 1, whole="int8")
    assert native.kernel_for(module, whole_placed) is (None if native.fastest_kernel() is native.PLAIN else native.fastest_kernel())
    assert native.kernel_for(module, Placement(torch.device("cpu"), torch.float32, 1)) is None, "float32 by name stays torch's"
    assert native.kernel_for(build(NetworkConfig(blocks=1), NetSpec(3, 6, 7, 2, 7, 1)), whole_placed) is None
    monkeypatch.setattr(native, "AVX512", None)
    monkeypatch.setattr(native, "AVX2", None)
    assert native.fastest_kernel() is native.PLAIN
    assert native.kernel_for(module, whole_placed) is None, "torch is faster"


@pytest.mark.parametrize(("kernel", "flags"), [(native.AVX512, AVX512), (native.AVX2, {"avx2"})])
def test_the_cpu_says_of_itself_what_the_system_says_of_it(kernel, flags):
    assert kernel is None or kernel.supported() == (flags <= cpu_flags())


def test_what_a_cpu_computes_by_its_flags():
    for flags in (AVX2, AVX2 | {"avx512f"}, AVX512, AVX512 | {"avx512_bf16"}):
        assert whole_numbers(flags) == "int8", "bfloat16 or not"
    for neither in (frozenset[str](), frozenset({"avx2", "fma"}), AVX512 | {"amx_bf16"}):
        assert whole_numbers(neither) == ""


@pytest.mark.parametrize("flags", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_whole_numbers_are_taken_where_the_cpu_has_them_and_refused_elsewhere(monkeypatch, flags):
    monkeypatch.setattr("azq.nets.device.cpu_flags", lambda: flags)
    assert place(InferenceConfig(device="cpu")).whole == place(InferenceConfig(device="cpu")).precision == "int8"
    for by_name in ("int8", "int16"):  # the latter as earlier versions had it
        assert place(InferenceConfig.model_validate({"device": "cpu", "precision": by_name})).whole == "int8"
    for other in ("bfloat16", "float32"):
        assert place(InferenceConfig(device="cpu", precision=other)).whole == ""
        assert place(InferenceConfig(device="cpu", precision=other)).precision == other
    monkeypatch.setattr("azq.nets.device.cpu_flags", frozenset)
    assert place(InferenceConfig(device="cpu")).whole == ""
    with pytest.raises(ConfigError, match="needs a CPU with AVX2 and no AMX"):
        place(InferenceConfig(device="cpu", precision="int8"))
