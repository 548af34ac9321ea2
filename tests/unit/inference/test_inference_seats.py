"""Inference for games with a value per seat, with outcomes, and for networks that learned from further heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inference_doubles import CONFIG, RUN, OneRun, Shelf, observations, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S

from azq.config import NetworkConfig, RunSections
from azq.errors import ConfigError, WeightsError
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.local import LocalEvaluator
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.serve.server import InferenceServer
from azq.nets import NetSpec, build, from_bytes, unpack

KINDS = ["resnet", "mlp", "transformer", "structured"]
GROUPS = (("first", ((0, 1, 2), (3, 4, 5))), ("rest", ((6,), (7,), (12,))))
SEATS = NetSpec(6, 1, 12, 3, 20, 4, num_hidden=30, has_margin=True, token_groups=GROUPS)
WEIGHTS, BIAS = (2 / 3, 1 / 3, 1 / 3, -1 / 3, -1 / 3), -1 / 3
OUTCOMES = NetSpec(4, 1, 26, 0, 9, 1, WEIGHTS, BIAS, token_groups=GROUPS)


def network(kind, *auxiliary):
    return NetworkConfig(kind=kind, blocks=1, channels=16, heads=4, auxiliary=auxiliary)


def plain(data, settings, spec, packed):
    """The float32 network's own answer."""
    module = build(settings, spec)
    module.load_state_dict(from_bytes(data)[0])
    with torch.inference_mode():
        return module(*unpack(torch.from_numpy(packed), spec))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_per_seat(kind, precision):
    settings = network(kind, "advantage", "margin", "hidden")
    data, packed = weights(1, spec=SEATS, network=settings), observations(9, spec=SEATS)
    model = Model(SEATS, settings, Engine(CONFIG.model_copy(update={"precision": precision})))
    model.load(data)
    logits, values = model.evaluate(packed)
    assert logits.shape == (9, 20)
    assert values.shape == (9, 4)
    expected = plain(data, settings, SEATS, packed)
    tolerance = 0.002 if precision == "float32" else 0.1
    assert np.allclose(logits, expected[0], atol=tolerance)
    assert np.allclose(values, expected[1], atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_of_a_model_combine_to_its_values(kind):
    model = Model(OUTCOMES, network(kind), Engine(CONFIG.model_copy(update={"precision": "float32"})))
    model.load(weights(2, spec=OUTCOMES, network=network(kind)))
    packed = observations(30, spec=OUTCOMES)
    packed.flags.writeable = False
    outcomes = model.outcomes(packed)
    assert outcomes.shape == (30, 5)
    assert outcomes.dtype == np.float32
    assert ((outcomes > 0) & (outcomes < 1)).all()
    assert np.allclose(outcomes @ np.array(WEIGHTS, np.float32) + BIAS, model.evaluate(packed)[1][:, 0], atol=0.002)


def test_outcomes_of_an_evaluator_and_of_a_game_without_them():
    evaluator = LocalEvaluator.from_bytes(OUTCOMES, weights(2, version=3, spec=OUTCOMES, network=network("mlp")), CONFIG)
    packed = observations(4, spec=OUTCOMES)
    assert evaluator.outcomes(packed).shape == (4, 5)
    assert np.array_equal(evaluator.outcomes(packed), evaluator.outcomes(packed, weight_version=3))
    with pytest.raises(WeightsError, match="version 4 are not loaded"):
        evaluator.outcomes(packed, weight_version=4)
    evaluator.close()
    other = LocalEvaluator.from_bytes(SEATS, weights(1, spec=SEATS, network=network("mlp")), CONFIG)
    with pytest.raises(ConfigError, match="declares no outcomes"):
        other.outcomes(observations(4, spec=SEATS))
    other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_values_per_seat_travel_through_the_stream(kind):
    bus, settings = MemoryBus(), network(kind)
    shelf = Shelf(bus)
    data = weights(1, spec=SEATS, network=settings)
    shelf.publish(1, data)
    runs = OneRun(sections=RunSections(network=settings))
    server = InferenceServer(bus, bus, runs, shelf.fetch, Engine(CONFIG), "inference@test:1", lambda _sections: SEATS)
    client = StreamEvaluator(bus, RUN, "c1", num_actions=20, value_size=4)
    narrow = StreamEvaluator(bus, RUN, "c2", num_actions=20, value_size=1)
    packed = observations(7, spec=SEATS)
    handle, other = client.submit(packed), narrow.submit(packed[:2])
    try:
        answered = 0
        while answered < 9:
            answered += server.step(0)
    finally:
        server.close()  # a thread that still runs torch when the interpreter ends would abort it
    evaluation = client.result(handle, timeout_s=PATIENCE_S)
    assert evaluation.values.shape == (7, 4)
    assert np.allclose(evaluation.values, plain(data, settings, SEATS, packed)[1], atol=0.1)
    assert narrow.result(other, timeout_s=0.0) is None  # four values a leaf are none of a two-player game
