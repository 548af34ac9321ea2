"""Graphs per bucket and slot: who is launched where, and when what is recorded, on doubles of slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from inference_doubles import CONFIG, NETWORK, SPEC, observations, weights
from numpy.typing import NDArray

from azq.config import NetworkConfig
from azq.inference.device.cuda import SLOTS, GraphForward
from azq.inference.device.engine import Engine, Mode, Rung
from azq.inference.device.forward import CaptureRefused, EagerForward, Landed, buckets
from azq.inference.device.model import Model
from azq.inference.device.placement import place
from azq.inference.device.ways import Pass
from azq.nets import build, from_bytes

SIZES = buckets(64, per_octave=2)
CPU = torch.device("cpu")


class FakeSlot:
    """Records what a slot is asked for, and evaluates op by op."""

    def __init__(self, run: Pass, turn: int, lanes: FakeLanes) -> None:
        self.turn = turn
        self.lanes = lanes
        self.sizes: list[int] = []
        self.launched: list[int] = []
        self._forward = EagerForward(run.network, CPU, SIZES)

    @property
    def recorded(self) -> list[int]:
        return sorted(self.sizes)

    def capture(self, size: int) -> None:
        if size in self.lanes.refused:
            raise CaptureRefused("operation not permitted when stream is capturing")
        self.sizes.append(size)

    def launch(self, parts: Sequence[NDArray[np.uint8]], size: int) -> Landed:
        assert size in self.sizes
        self.launched.append(size)
        return self._forward.launch(*parts)


class FakeLanes:
    """A device's streams and pools, without a device."""

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.slots: list[FakeSlot] = []
        self.settled = 0
        self.told: list[tuple[int, int]] = []

    def slot(self, run: Pass, turn: int, largest: int) -> FakeSlot:
        assert largest == SIZES[-1]
        self.slots.append(FakeSlot(run, turn, self))
        return self.slots[-1]

    def settle(self) -> None:
        self.settled += 1

    def tell(self, recorded: int, graphs: int) -> None:
        self.told.append((recorded, graphs))


@pytest.fixture
def run():
    torch.set_num_threads(1)
    made = build(NETWORK, SPEC)
    made.load_state_dict(from_bytes(weights(1))[0])
    return Pass(made.eval().requires_grad_(False))


def test_slots_take_turns_and_graphs_are_recorded_once(run):
    lanes = FakeLanes()
    forward = GraphForward(run, SIZES, lanes)
    forward.refresh()
    for count in (5, 6, 6, 5, 64, 33, 1):
        assert len(forward.launch(observations(count)).wait()[0]) == count
    assert sorted(size for slot in lanes.slots for size in slot.launched) == [1, 6, 6, 6, 6, 48, 64]
    assert {slot.turn: len(slot.launched) for slot in lanes.slots} == {0: 3, 1: 4}


def test_all_sizes_are_recorded_before_a_network_serves_and_none_again(run):
    lanes = FakeLanes()
    forward = GraphForward(run, SIZES, lanes)
    for times in (1, 2):
        forward.refresh()
        assert lanes.settled == times
        assert [slot.sizes for slot in lanes.slots] == [list(reversed(SIZES))] * SLOTS  # the largest first
    graphs = SLOTS * len(SIZES)
    assert lanes.told == [(number, graphs) for number in range(graphs + 1)] + [(0, 0)]


def test_a_launch_records_nothing_but_takes_a_larger_graph_or_none(run):
    lanes = FakeLanes()
    forward, packed = GraphForward(run, SIZES, lanes), observations(9)
    for slot in lanes.slots:
        slot.sizes = [48, 8]
    assert len(forward.launch(packed).wait()[0]) == 9
    with pytest.raises(CaptureRefused, match="no graph of 64 leaves was recorded"):  # which the ladder runs op by op
        forward.launch(observations(64))
    assert sorted(slot.launched for slot in lanes.slots) == [[], [48]]


def test_a_refused_capture_is_raised(run):
    lanes = FakeLanes()
    lanes.refused = {6}
    forward = GraphForward(run, SIZES, lanes)
    with pytest.raises(CaptureRefused):
        forward.refresh()
    assert lanes.told[-1] == (SLOTS * len(SIZES),) * 2  # nobody waits any more
    assert len(forward.launch(observations(9)).wait()[0]) == 9


class GraphEngine(Engine):
    """An engine that takes graphs of a fake device for its fast way."""

    def __init__(self) -> None:
        config = CONFIG.model_copy(update={"max_batch": 64, "precision": "float32"})
        super().__init__(config, place(config))
        self.lanes = FakeLanes()

    def forward(self, reference, rung):
        module, forward = super().forward(reference, rung)
        return (module, GraphForward(Pass(module), SIZES, self.lanes)) if rung.mode is Mode.FAST else (module, forward)


def test_a_refused_capture_makes_the_model_run_op_by_op():
    torch.set_num_threads(1)
    engine = GraphEngine()
    model = Model(SPEC, NETWORK, CONFIG, engine=engine)
    model.load(weights(1))
    packed = observations(20)
    expected = model.evaluate(packed)
    engine.lanes.refused = set(SIZES)
    model = Model(SPEC, NETWORK, CONFIG, engine=engine)
    model.load(weights(1))
    assert model.rung == Rung(Mode.EAGER, 64)
    assert engine.rung == Rung(Mode.FAST, 64)
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
