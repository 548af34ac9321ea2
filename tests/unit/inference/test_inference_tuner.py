"""A network is measured as it is loaded, and what the operator set is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inference_doubles import CONFIG, NETWORK, SPEC, weights
from machine_doubles import Machine

from azq.config import InferenceConfig
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.device.placement import Placement
from azq.inference.device.tuner import tune
from azq.inference.device.tuning import LONGEST_DEADLINE_S, SHORTEST_DEADLINE_S


def loaded(config: InferenceConfig, cores: int) -> tuple[Model, Engine]:
    engine = Engine(config, Placement(torch.device("cpu"), torch.float32, config.threads or 1, cores))
    model = Model(SPEC, NETWORK, config, engine=engine)
    model.load(weights(1))
    return model, engine


def test_a_network_is_measured_and_what_the_operator_set_is_kept():
    model, engine = loaded(InferenceConfig(device="cpu", max_batch=64), cores=2)
    before = torch.get_num_threads()
    enough, deadline_s = tune(model, engine, InferenceConfig(device="cpu", max_batch=64)).limits
    assert enough in (1, 2, 4, 8, 16, 32, 64)
    assert SHORTEST_DEADLINE_S <= deadline_s <= LONGEST_DEADLINE_S
    assert engine.threads in (1, 2)
    torch.set_num_threads(before)

    model, engine = loaded(CONFIG, cores=2)
    assert tune(model, engine, CONFIG).limits == (256, 0.001)
    assert engine.threads == 1
    chosen = CONFIG.model_copy(update={"batch": 48, "deadline_ms": "auto"})
    assert tune(model, engine, chosen).limits.enough == 48
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_threads_are_chosen_by_what_they_bring(monkeypatch):
    """On a machine where the second thread helps and the third does not."""
    config = InferenceConfig(device="cpu", max_batch=32, deadline_ms="auto")
    model, engine = loaded(config, cores=3)
    machine = Machine(lambda _size: {1: 0.004, 2: 0.0021, 3: 0.002}[torch.get_num_threads()])
    monkeypatch.setattr(model, "launch", lambda packed: machine.evaluate(len(packed)))
    monkeypatch.setattr(model, "land", lambda _flight, _packed: np.empty(0))
    before = torch.get_num_threads()
    tuned = tune(model, engine, config, machine.clock_s)
    assert engine.threads == 2
    assert tuned.limits == (32, pytest.approx(0.0021 / 4))
    torch.set_num_threads(before)
