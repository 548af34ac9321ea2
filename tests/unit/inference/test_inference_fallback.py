"""The ladder: which execution follows a failure, and what a model makes of forward passes that fail in every way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inference_doubles import CONFIG, NETWORK, SPEC, FakeEngine, answering, observations, raising, weights

from azq.config import NetworkConfig
from azq.errors import DeviceError, ExitCode, WeightsError
from azq.inference.device.engine import SMALLEST_BATCH, Execution, Mode, fallback_after, modes_on
from azq.inference.device.forward import CaptureRefused, CompletedBatch, Failure, all_finite, classify
from azq.inference.device.model import Model
from azq.nets import build, from_bytes, to_bytes, unpack

devices = st.sampled_from(["cpu", "cuda", "mps"])
executions = st.builds(Execution, st.sampled_from(Mode), st.integers(1, 10_000))


@given(execution=executions, failures=st.lists(st.sampled_from(Failure), min_size=20, max_size=20), device=devices)
def test_the_ladder_ends(execution, failures, device):
    for failure in failures:
        lower = fallback_after(execution, failure, modes_on(device))
        if isinstance(lower, str):
            return
        execution = lower
    pytest.fail(f"still on {execution} after {len(failures)} failures")


def test_the_order_of_the_rungs():
    modes = modes_on("cuda")
    assert fallback_after(Execution(Mode.FAST, 4096), Failure.OUT_OF_MEMORY, modes) == Execution(Mode.FAST, 2048)
    assert fallback_after(Execution(Mode.FAST, SMALLEST_BATCH), Failure.OUT_OF_MEMORY, modes) == Execution(Mode.EAGER, SMALLEST_BATCH)
    assert fallback_after(Execution(Mode.FAST, 4096), Failure.CAPTURE, modes) == Execution(Mode.EAGER, 4096)
    assert fallback_after(Execution(Mode.EAGER, 4096), Failure.NOT_FINITE, modes) == Execution(Mode.EXACT, 4096)
    assert fallback_after(Execution(Mode.EXACT, 4096), Failure.WRONG, modes) == Execution(Mode.PLAIN, 4096)
    assert fallback_after(Execution(Mode.EAGER, 4096), Failure.WRONG, modes_on("cpu")) == Execution(Mode.PLAIN, 4096)
    assert isinstance(fallback_after(Execution(Mode.PLAIN, 4096), Failure.BROKEN, modes), str)
    assert isinstance(fallback_after(Execution(Mode.FAST, 4096), Failure.DEVICE_LOST, modes), str)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), Failure.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory"), Failure.OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), Failure.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), Failure.OUT_OF_MEMORY),
        (MemoryError(), Failure.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), Failure.CAPTURE),
        (RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"), Failure.CAPTURE),
        (CaptureRefused("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), Failure.CAPTURE),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Failure.DEVICE_LOST),
        (RuntimeError("CUDA error: unspecified launch failure"), Failure.DEVICE_LOST),
        (RuntimeError("CUDA error: device-side assert triggered"), Failure.DEVICE_LOST),
        (RuntimeError("CUDA driver error: device not ready"), Failure.DEVICE_LOST),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`"), Failure.BROKEN),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), Failure.BROKEN),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Failure.BROKEN),
    ],
)
def test_errors_are_known_by_their_words(error, failure):
    assert classify(error) is failure


def test_finiteness_by_bits():
    good = np.array([[0.0, -0.0, 65504.0, -65504.0, 6e-8]], np.float16)
    assert all_finite(good)
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        spoiled = good.copy()
        spoiled[0, 2] = bad
        assert not all_finite(spoiled)
    assert all_finite(np.empty((0, 7), np.float16))


def make(failing, **changes):
    config = CONFIG.model_copy(update=changes)
    engine = FakeEngine(failing, config)
    return Model(SPEC, NETWORK, engine), engine


def reference(data, packed):
    module = build(NETWORK, SPEC)
    module.load_state_dict(from_bytes(data)[0])
    with torch.inference_mode():
        logits, values = module(*unpack(torch.from_numpy(packed), SPEC))
    return logits.numpy(), values.numpy()


NAN = answering(np.nan)
WAYS = {
    "nan": NAN,
    "infinite": answering(np.inf),
    "wrong": answering(1.0),
    "capture": raising(RuntimeError("operation not permitted when stream is capturing")),
    "memory": raising(RuntimeError("CUDA out of memory")),
    "anything": raising(RuntimeError("no kernel image is available")),
}


@pytest.mark.parametrize("fail", WAYS.values(), ids=WAYS)
def test_a_start_goes_down_until_the_self_test_passes(fail):
    model, engine = make({Mode.FAST: fail, Mode.EAGER: fail})
    data, packed = weights(1, version=4), observations(70)
    model.load(data)
    assert model.version == 4
    assert model.execution.mode is Mode.PLAIN
    assert engine.fallbacks >= 2
    expected = reference(data, packed)
    logits, values = model.evaluate(packed)
    assert np.allclose(logits, expected[0], atol=2e-3)
    assert np.allclose(values, expected[1], atol=2e-3)


@pytest.mark.parametrize("fail", [fail for name, fail in WAYS.items() if name != "wrong"], ids=[name for name in WAYS if name != "wrong"])
def test_a_batch_that_fails_in_service_is_made_again_lower_down(fail):
    model, engine = make({})
    data, packed = weights(1), observations(70)
    model.load(data)
    running = model.launch(packed)
    assert model.execution == Execution(Mode.FAST, 256)
    engine.failing |= {Mode.FAST: fail, Mode.EAGER: fail}
    model.complete(running, packed)  # launched before anything was wrong
    logits, _ = model.evaluate(packed[:30], packed[30:])
    assert model.execution.mode is Mode.PLAIN
    assert np.allclose(logits, reference(data, packed)[0], atol=2e-3)


def test_out_of_memory_halves_batches_and_larger_requests_are_cut():
    model, engine = make({})
    most = 100

    def small_only(*parts):
        if sum(map(len, parts)) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain.launch(*parts)

    data, packed = weights(1), observations(250)
    model.load(data)
    plain = engine.forward(model.reference, Execution(Mode.PLAIN, 256), (SPEC, NETWORK))[1]
    engine.failing[Mode.FAST] = small_only
    logits, values = model.evaluate(packed)
    assert model.execution == Execution(Mode.FAST, 64)
    assert engine.execution_for((SPEC, NETWORK)) == Execution(Mode.FAST, 64)  # its next version need not find out again
    assert engine.execution_for((SPEC, NetworkConfig(blocks=9))) == Execution(Mode.FAST, 256)  # one that is too large slows no other down
    assert logits.shape == (250, 7)
    assert np.allclose(logits, reference(data, packed)[0], atol=2e-3)
    assert np.allclose(values, reference(data, packed)[1], atol=2e-3)


@pytest.mark.parametrize("name", ["memory", "capture"])
def test_what_a_network_demotions_is_forgotten_after_growing_whiles(name):
    now_s = 0.0
    engine = FakeEngine({Mode.FAST: WAYS[name]}, now_s=lambda: now_s)
    model = Model(SPEC, NETWORK, engine)
    other = (SPEC, NetworkConfig(blocks=9))
    for times, pause_s in enumerate((60.0, 120.0, 240.0, 480.0, 600.0, 600.0), start=1):
        model.load(weights(1, version=times))
        fallen = model.execution
        assert fallen.mode is Mode.EAGER
        falls = engine.fallbacks
        assert falls % times == 0  # however many steps it takes, it counts once
        now_s += pause_s - 1.0
        model.load(weights(1, version=times))
        assert (model.execution, engine.fallbacks) == (fallen, falls)  # not tried again yet
        assert engine.execution_for(other) == engine.execution == Execution(Mode.FAST, 256)
        now_s += 1.0
    engine.failing.clear()
    model.load(weights(2, version=9))
    assert model.execution == Execution(Mode.FAST, 256)


def test_what_one_network_suffers_from_another_does_not():
    model, engine = make({Mode.FAST: NAN})
    model.load(weights(1))
    assert model.execution.mode is Mode.EAGER
    assert engine.execution.mode is Mode.FAST
    engine.failing.clear()
    model.load(weights(2, version=2))
    assert model.execution.mode is Mode.FAST  # new weights begin at the top


@pytest.mark.parametrize("fail", [WAYS["nan"], WAYS["anything"]])
def test_it_leaves_where_every_way_fails(fail):
    model, _ = make(dict.fromkeys(Mode, fail))
    with pytest.raises(DeviceError, match="even the plain forward pass failed") as caught:
        model.load(weights(1))
    assert caught.value.exit_code is ExitCode.DEVICE
    assert model.version == 0


def test_a_lost_device_is_left_at_once():
    model, engine = make({})
    model.load(weights(1))
    engine.failing[Mode.FAST] = raising(RuntimeError("CUDA error: unspecified launch failure"))
    with pytest.raises(DeviceError, match="the device is lost to this process"):
        model.evaluate(observations(3))
    assert engine.built == [Execution(Mode.FAST, 256)]


def test_weights_whose_reference_is_not_finite_are_to_blame_themselves():
    """On one observation only, so that the self-test does not see it."""
    model, engine = make({})
    model.load(weights(1))
    with torch.no_grad():
        model.reference.policy.weight.fill_(float("inf"))
    engine.failing[Mode.FAST] = NAN
    with pytest.raises(WeightsError, match="weights version 1 evaluated to NaN or infinity"):
        model.evaluate(observations(3))
    assert engine.fallbacks == 0  # nobody leaves for it: the next worker would find the same


def test_weights_too_large_for_the_wire_are_refused():
    module = build(NETWORK, SPEC, seed=1)
    with torch.no_grad():
        module.policy.bias.fill_(1e6)  # finite in float32, infinite in float16
    model, engine = make({})
    with pytest.raises(WeightsError, match="evaluate to NaN or infinity"):
        model.load(to_bytes(module, from_bytes(weights(1))[1]))
    assert engine.fallbacks == 0


def test_a_flight_that_landed_says_whether_it_is_finite():
    assert CompletedBatch((np.zeros((2, 7), np.float16), np.zeros((2, 1), np.float16))).finite()
    assert not CompletedBatch((np.zeros((2, 7), np.float16), np.full((2, 1), np.nan, np.float16))).finite()
