"""Graphs per bucket and slot: who is launched where, and when what is recorded, on a fake device; on the real one in tests marked gpu."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_doubles import CONFIG, NETWORK, RUN, SPEC, Shelf, ask, eventually, make_server, observations, same_bits, serving, weights

from azq.bus.memory import MemoryBus
from azq.config import NetworkConfig
from azq.inference.batching import buckets
from azq.inference.client import StreamEvaluator
from azq.inference.cuda import SLOTS, GraphForward, Slot
from azq.inference.engine import Engine
from azq.inference.fallback import CaptureRefused, Mode, Rung
from azq.inference.forward import EagerForward, Landed
from azq.inference.model import Model
from azq.inference.placement import place
from azq.nets import build, from_bytes

SIZES = buckets(64, per_octave=2)
CPU = torch.device("cpu")


class FakeSlot:
    """Records what a slot is asked for, and evaluates op by op."""

    def __init__(self, module, turn: int, lanes: FakeLanes) -> None:
        self.turn = turn
        self.lanes = lanes
        self.sizes: list[int] = []
        self.launched: list[int] = []
        self._forward = EagerForward(module, CPU, SIZES)

    def holds(self, size: int) -> bool:
        return size in self.sizes

    def capture(self, size: int) -> None:
        assert self.lanes.capturing.locked()  # by whoever asks
        if size in self.lanes.refused:
            raise CaptureRefused("operation not permitted when stream is capturing")
        self.sizes.append(size)

    def launch(self, parts, size: int) -> Landed:
        assert size in self.sizes
        self.launched.append(size)
        return self._forward.launch(*parts)


class FakeLanes:
    """A device's streams and pools, without a device."""

    def __init__(self) -> None:
        self.capturing = threading.Lock()
        self.in_use: set[int] = set()
        self.refused: set[int] = set()
        self.slots: list[FakeSlot] = []
        self.settled = 0

    def slot(self, module, turn: int, largest: int) -> FakeSlot:
        assert largest == SIZES[-1]
        self.slots.append(FakeSlot(module, turn, self))
        return self.slots[-1]

    def settle(self) -> None:
        self.settled += 1


@pytest.fixture
def module():
    torch.set_num_threads(1)
    made = build(NETWORK, SPEC)
    made.load_state_dict(from_bytes(weights(1))[0])
    return made.eval().requires_grad_(False)


def test_slots_take_turns_and_graphs_are_recorded_once(module):
    lanes = FakeLanes()
    forward = GraphForward(module, CPU, SIZES, lanes)
    for count in (5, 6, 6, 5, 64, 33, 1):
        assert len(forward.launch(observations(count)).wait()[0]) == count
    assert sorted(size for slot in lanes.slots for size in slot.launched) == [1, 6, 6, 6, 6, 48, 64]
    assert {slot.turn: len(slot.launched) for slot in lanes.slots} == {0: 3, 1: 4}
    assert all(len(slot.sizes) == len(set(slot.sizes)) for slot in lanes.slots)
    assert lanes.in_use == {1, 6, 48, 64}


def test_a_new_network_is_recorded_for_the_sizes_in_use_before_it_serves(module):
    lanes = FakeLanes()
    old = GraphForward(module, CPU, SIZES, lanes)
    old.launch(observations(5))
    old.launch(observations(40))
    new = GraphForward(module, CPU, SIZES, lanes)
    new.refresh()
    assert lanes.settled == 1
    assert [slot.sizes for slot in lanes.slots[SLOTS:]] == [[48, 6], [48, 6]]  # the largest first
    new.refresh()
    assert [slot.sizes for slot in lanes.slots[SLOTS:]] == [[48, 6], [48, 6]]


def test_while_another_thread_records_a_new_size_is_run_op_by_op(module):
    lanes = FakeLanes()
    forward, packed = GraphForward(module, CPU, SIZES, lanes), observations(9)
    with lanes.capturing:
        during = forward.launch(packed).wait()
    assert all(not slot.launched for slot in lanes.slots)
    after = forward.launch(packed).wait()
    assert sum(len(slot.launched) for slot in lanes.slots) == 1
    assert np.array_equal(during[0], after[0])


def test_a_refused_capture_is_raised_and_leaves_the_lock_free(module):
    lanes = FakeLanes()
    lanes.refused = {6}
    forward = GraphForward(module, CPU, SIZES, lanes)
    with pytest.raises(CaptureRefused):
        forward.launch(observations(5))
    assert not lanes.capturing.locked()
    assert len(forward.launch(observations(9)).wait()[0]) == 9


class GraphEngine(Engine):
    """An engine that takes graphs of a fake device for its fast way."""

    def __init__(self) -> None:
        config = CONFIG.model_copy(update={"max_batch": 64, "precision": "float32"})
        super().__init__(config, place(config))
        self.lanes = FakeLanes()

    def forward(self, reference, rung):
        module, forward = super().forward(reference, rung)
        return (module, GraphForward(module, CPU, SIZES, self.lanes)) if rung.mode is Mode.FAST else (module, forward)


def test_a_refused_capture_makes_the_model_run_op_by_op():
    torch.set_num_threads(1)
    engine = GraphEngine()
    model = Model(SPEC, NETWORK, CONFIG, engine=engine)
    model.load(weights(1))
    packed = observations(20)
    expected = model.evaluate(packed)
    engine.lanes.refused = set(SIZES)
    logits, values = model.evaluate(observations(33))
    assert len(logits) == len(values) == 33
    assert model.rung == engine.rung == Rung(Mode.EAGER, 64)
    assert np.allclose(model.evaluate(packed)[0], expected[0], atol=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_changes_no_evaluation():
    torch.set_num_threads(1)
    network = NetworkConfig(kind="mlp", blocks=1, channels=16)
    config = CONFIG.model_copy(update={"precision": "float32", "compile": True, "max_batch": 64})
    model, plain = Model(SPEC, network, config), Model(SPEC, network, config.model_copy(update={"compile": False}))
    for one in (model, plain):
        one.load(weights(1, network=network))
        assert one.rung.mode is Mode.FAST
    assert np.allclose(model.evaluate(observations(20))[0], plain.evaluate(observations(20))[0], atol=2e-3)


# -- on a CUDA device

GPU_CONFIG = CONFIG.model_copy(update={"device": "cuda", "precision": "bfloat16", "max_batch": 512, "batch": 512})
GPU_EDGES = sorted({size + step for size in buckets(512, per_octave=4) for step in (-1, 0, 1) if 1 <= size + step <= 512})


@pytest.fixture(scope="module")
def gpu_models():
    graph, eager = Model(SPEC, NETWORK, GPU_CONFIG), Model(SPEC, NETWORK, GPU_CONFIG)
    eager._engine.rung = Rung(Mode.EAGER, 512)
    for model in (graph, eager):
        model.load(weights(1))
    assert graph.rung.mode is Mode.FAST
    assert eager.rung.mode is Mode.EAGER
    return graph, eager


@pytest.mark.gpu
@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.sampled_from(GPU_EDGES), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_graph_eager_and_reference_agree_on_the_device(gpu_models, counts, seed):
    graph, eager = gpu_models
    packed = [observations(count, seed=seed + index) for index, count in enumerate(counts)]
    flights = [graph.launch(rows) for rows in packed]  # more than there are slots
    for rows, flight in zip(packed, flights, strict=True):
        logits, values = graph.land(flight, rows)
        assert np.array_equal(logits, eager.evaluate(rows)[0])
        expected = graph._plain(rows)
        assert np.abs(logits.astype(np.float32) - expected[0].numpy()).max() <= 0.15
        assert np.abs(values.astype(np.float32) - expected[1].numpy()).max() <= 0.03
    assert graph.rung.mode is Mode.FAST


@pytest.mark.gpu
def test_weights_are_swapped_under_load_on_the_device():
    bus = MemoryBus()
    shelf = Shelf(bus)
    shelf.publish(1, weights(1))
    server, packed = make_server(bus, bus, shelf, config=GPU_CONFIG), observations(100)
    expected = {}
    for version in range(1, 8):
        model = Model(SPEC, NETWORK, GPU_CONFIG)
        model.load(weights(version, version=version))
        expected[version] = model.evaluate(packed)[0]
    client = StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions)
    with serving(server):
        for version in range(1, 8):
            if version > 1:
                shelf.publish(version, weights(version, version=version))
            handles = [client.submit(packed) for _ in range(8)]
            answers = [client.result(handle, timeout_s=10.0) for handle in handles]
            assert all(np.array_equal(answer.logits, expected[answer.weight_version]) for answer in answers)
            eventually(lambda version=version: server.versions == {RUN: version}, f"version {version} is served", within_s=30.0)
        assert ask(client, packed).weight_version == 7
        assert same_bits(ask(client, packed, weight_version=6), ask(client, packed, weight_version=6))
    assert server.rates()["fallbacks"] == 0


@pytest.mark.gpu
def test_a_refused_capture_on_the_device(monkeypatch):
    def refuse(_slot, _size):
        torch.cuda.synchronize()
        raise CaptureRefused("refused by the test")

    monkeypatch.setattr(Slot, "capture", refuse)
    model = Model(SPEC, NETWORK, GPU_CONFIG)
    model.load(weights(1))
    assert model.rung.mode is Mode.EAGER
    assert len(model.evaluate(observations(33))[0]) == 33
    monkeypatch.undo()


@pytest.mark.gpu
def test_outputs_that_are_not_finite_are_seen_on_the_device():
    model = Model(SPEC, NETWORK, GPU_CONFIG)
    model.load(weights(1))
    packed = observations(40)
    expected = model.evaluate(packed)[0]
    with torch.no_grad():
        next(iter(model._built[1].parameters())).fill_(float("nan"))  # the device's copy alone
    torch.cuda.synchronize()
    assert not model.launch(packed).finite()
    logits, _ = model.evaluate(packed)
    assert model.rung.mode is not Mode.FAST
    assert np.abs(logits.astype(np.float32) - expected).max() <= 0.15
