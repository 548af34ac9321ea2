"""A graph per bucket: who is launched where, and when what is recorded, on the fake device."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from inference_doubles import NETWORK, SPEC, observations, weights

from azq.config import InferenceConfig, NetworkConfig
from azq.inference.device.cuda import CudaStreams, GraphForward, Graphs, Slot
from azq.inference.device.engine import Engine, Mode
from azq.inference.device.forward import CaptureRefused, buckets
from azq.inference.device.kernels import Pass
from azq.inference.device.model import Model
from azq.nets import build, from_bytes

SIZES = buckets(64, per_octave=2)


@pytest.fixture
def streams(fake_cuda):
    return CudaStreams(torch.device("cuda:0"))


@pytest.fixture
def forward(streams):
    made = build(NETWORK, SPEC)
    made.load_state_dict(from_bytes(weights(1))[0])
    made.eval().requires_grad_(False)
    return GraphForward(Pass(made), Graphs(Pass(copy.deepcopy(made)), SIZES, streams))


@pytest.fixture
def launched(monkeypatch):
    """Sizes that were replayed, by slot."""
    found: dict[int, list[int]] = {}
    launch = Slot.launch

    def noted(slot, parts, size, *others, **options):
        found.setdefault(id(slot), []).append(size)
        return launch(slot, parts, size, *others, **options)

    monkeypatch.setattr(Slot, "launch", noted)
    return found


def test_all_sizes_are_recorded_before_a_network_serves_and_none_again(forward, streams, fake_cuda, monkeypatch):
    told: list[tuple[int, int]] = []
    captured: list[int] = []
    record = Graphs._record
    monkeypatch.setattr(streams, "report", lambda *progress: told.append(progress))
    monkeypatch.setattr(Graphs, "_record", lambda graphs, size: captured.append(size) or record(graphs, size))
    for _ in range(2):
        forward.refresh()
        assert captured == list(reversed(SIZES))  # the largest first
    assert len(fake_cuda.captures) == len(SIZES)
    assert told == [(number, len(SIZES)) for number in range(len(SIZES) + 1)] + [(0, 0)]


def test_a_launch_records_nothing_but_takes_a_larger_graph_or_none(forward, launched):
    forward._graphs._record(48)
    forward._graphs._record(8)
    assert len(forward.launch(observations(9)).wait()[0]) == 9
    with pytest.raises(CaptureRefused, match="no graph of 64 leaves was recorded"):  # which is then run op by op
        forward.launch(observations(64))
    assert list(launched.values()) == [[48]]


def test_a_capture_that_was_invalidated_ends_its_pool_alone(forward, streams, fake_cuda):
    """Torch leaves it under way, and refuses every later capture that is to allocate there."""
    forward.refresh(largest_only=True)
    fake_cuda.fail = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    with pytest.raises(CaptureRefused):
        forward.refresh()
    assert streams.progress == ""  # nobody waits any more
    fake_cuda.fail = None
    forward.refresh()
    assert forward.sizes == list(SIZES)
    assert not fake_cuda.under_way
    assert fake_cuda.pools == 2


def test_memory_that_runs_out_in_a_capture_leaves_its_pool_to_the_next(forward, fake_cuda):
    forward.refresh(largest_only=True)
    fake_cuda.rows = 10
    with pytest.raises(torch.OutOfMemoryError):
        forward.refresh()
    fake_cuda.rows = float("inf")
    forward.refresh()
    assert fake_cuda.pools == 1


def test_what_is_not_finite_is_seen_wherever_it_is(forward):
    forward.refresh()
    for rows in (1, 7, 64):
        assert forward.launch(observations(rows)).finite()
        for layer in (forward._run.network.value.bias, forward._run.network.policy.bias):
            for bad in (float("nan"), float("inf"), 1e6):  # the last in float16 alone
                kept = layer.clone()
                layer[-1] = bad
                forward.refresh()
                assert forward.launch(observations(rows)).finite() == (layer is forward._run.network.value.bias and bad == bad)
                layer.copy_(kept)
                forward.refresh()


def test_what_a_graph_does_not_write_is_no_answer_in_a_self_test(forward):
    forward.refresh()
    assert forward.launch(observations(8)).finite()
    forward._graphs._graphs[8].steps.clear()
    assert forward.launch(observations(8)).finite()  # the answers of the batch before
    assert not forward.launch(observations(8), poison=True).finite()


@pytest.mark.release
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_changes_no_evaluation():
    network = NetworkConfig(kind="mlp", blocks=1, channels=16)
    config = InferenceConfig(device="cpu", threads=1, precision="float32", compile=True, max_batch=64)
    model, plain = Model(SPEC, network, Engine(config)), Model(SPEC, network, Engine(config.model_copy(update={"compile": False})))
    for one in (model, plain):
        one.load(weights(1, network=network))
        assert one.execution.mode is Mode.FAST
    assert np.allclose(model.evaluate(observations(20))[0], plain.evaluate(observations(20))[0], atol=2e-3)
