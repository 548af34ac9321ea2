"""Graphs per bucket and slot: who is launched where, and when what is recorded, on the fake device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inference_doubles import NETWORK, SPEC, observations, weights

from azq.config import InferenceConfig, NetworkConfig
from azq.inference.device.cuda import SLOTS, GraphForward, GraphSlot, Lanes
from azq.inference.device.engine import Mode
from azq.inference.device.forward import CaptureRefused, buckets
from azq.inference.device.model import Model
from azq.inference.device.ways import Pass
from azq.nets import build, from_bytes

SIZES = buckets(64, per_octave=2)


@pytest.fixture
def lanes(fake_cuda):
    torch.set_num_threads(1)
    return Lanes(torch.device("cuda:0"))


@pytest.fixture
def forward(lanes):
    made = build(NETWORK, SPEC)
    made.load_state_dict(from_bytes(weights(1))[0])
    return GraphForward(Pass(made.eval().requires_grad_(False)), SIZES, lanes)


@pytest.fixture
def launched(monkeypatch):
    """Sizes that were replayed, by slot."""
    found: dict[int, list[int]] = {}
    launch = GraphSlot.launch

    def noted(slot, parts, size):
        found.setdefault(id(slot), []).append(size)
        return launch(slot, parts, size)

    monkeypatch.setattr(GraphSlot, "launch", noted)
    return found


def test_slots_take_turns_and_graphs_are_recorded_once(forward, launched):
    forward.refresh()
    for count in (5, 6, 6, 5, 64, 33, 1):
        assert len(forward.launch(observations(count)).wait()[0]) == count
    assert sorted(size for sizes in launched.values() for size in sizes) == [1, 6, 6, 6, 6, 48, 64]
    turns = list(map(len, launched.values()))
    assert len(turns) == SLOTS
    assert max(turns) - min(turns) <= 1


def test_all_sizes_are_recorded_before_a_network_serves_and_none_again(forward, lanes, fake_cuda, monkeypatch):
    told: list[tuple[int, int]] = []
    captured: list[int] = []
    capture = GraphSlot.capture
    monkeypatch.setattr(lanes, "tell", lambda *progress: told.append(progress))
    monkeypatch.setattr(GraphSlot, "capture", lambda slot, size: captured.append(size) or capture(slot, size))
    for _ in range(2):
        forward.refresh()
        assert captured == [size for size in reversed(SIZES) for _ in range(SLOTS)]  # the largest first
    graphs = SLOTS * len(SIZES)
    assert len(fake_cuda.captures) == graphs
    assert told == [(number, graphs) for number in range(graphs + 1)] + [(0, 0)]


def test_a_launch_records_nothing_but_takes_a_larger_graph_or_none(forward, launched):
    for slot in forward._slots:
        slot.capture(48)
        slot.capture(8)
    assert len(forward.launch(observations(9)).wait()[0]) == 9
    with pytest.raises(CaptureRefused, match="no graph of 64 leaves was recorded"):  # which the ladder runs op by op
        forward.launch(observations(64))
    assert list(launched.values()) == [[48]]


def test_a_refused_capture_is_raised(forward, lanes, fake_cuda):
    forward.refresh(largest_only=True)
    fake_cuda.fail = RuntimeError("operation not permitted when stream is capturing")
    with pytest.raises(CaptureRefused):
        forward.refresh()
    assert lanes.doing == ""  # nobody waits any more
    assert len(forward.launch(observations(9)).wait()[0]) == 9


def test_what_is_not_finite_is_seen_wherever_it_is(forward):
    forward.refresh()
    for rows in (1, 7, 64):
        assert forward.launch(observations(rows)).finite()
        for layer in (forward._run.network.value.bias, forward._run.network.policy.bias):
            for bad in (float("nan"), float("inf"), 1e6):  # the last in float16 alone
                kept = layer.clone()
                layer[-1] = bad
                assert forward.launch(observations(rows)).finite() == (layer is forward._run.network.value.bias and bad == bad)
                layer.copy_(kept)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_changes_no_evaluation():
    torch.set_num_threads(1)
    network = NetworkConfig(kind="mlp", blocks=1, channels=16)
    config = InferenceConfig(device="cpu", threads=1, precision="float32", compile=True, max_batch=64)
    model, plain = Model(SPEC, network, config), Model(SPEC, network, config.model_copy(update={"compile": False}))
    for one in (model, plain):
        one.load(weights(1, network=network))
        assert one.rung.mode is Mode.FAST
    assert np.allclose(model.evaluate(observations(20))[0], plain.evaluate(observations(20))[0], atol=2e-3)
