"""What a batch waits for, chosen from latencies: on made-up ones, and on a made-up clock."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inference_doubles import CONFIG, NETWORK, SPEC, weights
from machine_doubles import Machine

from azq.config import InferenceConfig
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.device.tuning import (
    LONGEST_DEADLINE_S,
    SHORTEST_DEADLINE_S,
    Tuned,
    choose_batch,
    choose_deadline_s,
    choose_threads,
    measure,
    sizes_to_try,
    tune,
)
from azq.nets.device import Placement

tables = st.dictionaries(st.integers(1, 10_000), st.floats(1e-6, 10.0), min_size=1)


@given(tables)
def test_the_batch_is_the_smallest_near_the_best(latencies_s):
    chosen = choose_batch(latencies_s)
    best = max(size / latency_s for size, latency_s in latencies_s.items())
    assert chosen / latencies_s[chosen] >= 0.95 * best
    assert all(size / latency_s < 0.95 * best for size, latency_s in latencies_s.items() if size < chosen)


def test_a_device_that_needs_large_batches_gets_them_and_another_does_not():
    gpu = {size: 0.0005 + size / 4e6 for size in (64, 256, 1024, 4096, 8192)}  # half a millisecond to begin with
    cpu = {size: 0.00005 + size / 1e5 for size in (64, 256, 1024, 4096, 8192)}
    assert choose_batch(gpu) == 8192
    assert choose_batch(cpu) == 256
    assert choose_batch({94: 1.0, 95: 1.0, 100: 1.0}) == 95


def test_threads_are_taken_while_each_is_worth_its_core():
    assert choose_threads({1: 1.0, 2: 0.5, 3: 0.34, 4: 0.25}) == 4
    assert choose_threads({1: 1.0, 2: 0.55, 3: 0.54, 4: 0.1}) == 2  # the third was not, whatever the fourth is
    assert choose_threads({1: 1.0, 2: 1.2}) == 1
    assert choose_threads({1: 0.01}) == 1
    assert choose_threads({1: 0.5, 2: 0.4}) == 1
    assert choose_threads({1: 0.5, 2: 1 / 3}) == 2  # brings half of what the first one does, and no more


@pytest.mark.parametrize(
    ("latency_s", "deadline_s"), [(0.0, 0.0002), (0.0008, 0.0002), (0.004, 0.001), (0.016, 0.004), (0.02, 0.005), (100.0, 0.005)]
)
def test_a_deadline_is_a_quarter_of_a_batch_within_bounds(latency_s, deadline_s):
    assert choose_deadline_s(latency_s) == pytest.approx(deadline_s, rel=1e-9)


def test_sizes_to_try():
    assert sizes_to_try((1, 2, 3, 4, 6, 8, 10)) == (1, 2, 4, 8, 10)


def test_measuring_leaves_the_first_run_out_and_ends_in_time():
    machine = Machine(lambda size: size * 1e-4)
    found = measure(machine.evaluate, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], machine.clock_s, budget_s=0.5)
    assert found == pytest.approx({size: size * 1e-4 for size in found})
    assert list(found)[:4] == [1, 2, 4, 8]
    assert max(found) == 512
    assert machine.ran.count(1) > 50  # short ones are run often
    assert machine.ran.count(512) == 2

    machine = Machine(lambda size: size * 1e-3)
    found = measure(machine.evaluate, [64, 128, 256, 512], machine.clock_s, budget_s=0.5)
    assert list(found) == [64, 128]  # of the next, two runs would not fit


def test_one_size_is_measured_however_slow():
    machine = Machine(lambda _size: 9.0)
    assert measure(machine.evaluate, [64, 128], machine.clock_s, budget_s=0.1) == {64: 9.0}


def test_a_size_is_run_again_until_its_probe_is_over():
    clock_s = iter((0.0, 0.02, 9.0, 9.015, 9.5, 9.51))
    assert measure(lambda _size: None, [64], clock_s.__next__, budget_s=9.0) == {64: 0.02}
    assert measure(lambda _size: None, [64], clock_s.__next__, budget_s=9.0) == pytest.approx({64: 0.01})
    assert measure(lambda _size: None, [64], lambda: 7.0, budget_s=9.0) == {64: 1e-6}  # faster than its clock can tell


def test_the_next_size_is_tried_where_two_runs_of_twice_the_time_fit():
    slow = Machine(lambda _size: 1.0)
    assert list(measure(slow.evaluate, [1, 2], slow.clock_s, budget_s=5.0)) == [1, 2]
    assert list(measure(slow.evaluate, [4, 8], slow.clock_s, budget_s=4.5)) == [4]


def test_one_live_batch_moves_the_latency_by_a_twentieth():
    for leaves, deadline_s in ((49, 0.001), (50, 0.00105), (100, 0.00105)):
        tuned = Tuned(100, 0.004)
        tuned.observe(leaves, 0.008)
        assert tuned.limits.deadline_s == pytest.approx(deadline_s, rel=1e-9)


def test_a_deadline_that_was_set_follows_nothing():
    fixed = Tuned(100, 0.004, deadline_s=0.0)
    fixed.observe(100, 1.0)
    assert fixed.limits == (100, 0.0)


def loaded(config: InferenceConfig, cores: int) -> Model:
    engine = Engine(config, Placement(torch.device("cpu"), torch.float32, config.threads or 1, cores))
    model = Model(SPEC, NETWORK, engine)
    model.load(weights(1))
    return model


def test_a_network_is_measured_and_what_the_operator_set_is_kept():
    model = loaded(InferenceConfig(device="cpu", max_batch=64), cores=2)
    before = torch.get_num_threads()
    enough, deadline_s = tune(model, InferenceConfig(device="cpu", max_batch=64)).limits
    assert enough in (1, 2, 4, 8, 16, 32, 64)
    assert SHORTEST_DEADLINE_S <= deadline_s <= LONGEST_DEADLINE_S
    assert model.engine.threads in (1, 2)
    torch.set_num_threads(before)

    model = loaded(CONFIG, cores=2)
    assert tune(model, CONFIG).limits == (256, 0.001)
    assert model.engine.threads == 1
    chosen = CONFIG.model_copy(update={"batch": 48, "deadline_ms": "auto"})
    assert tune(model, chosen).limits.enough == 48
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_what_is_measured_is_as_varied_as_real_observations(monkeypatch):
    config = InferenceConfig(device="cpu", max_batch=64, deadline_ms="auto")
    model = loaded(config, cores=2)
    seen, launch = [], model.launch
    monkeypatch.setattr(model, "launch", lambda packed: seen.append(packed) or launch(packed))
    before = torch.get_num_threads()
    tune(model, config)
    torch.set_num_threads(before)
    assert {len(packed) for packed in seen} >= {1, 64}
    assert all(len(np.unique(packed, axis=0)) == len(packed) for packed in seen)


def test_threads_are_chosen_by_what_they_bring(monkeypatch):
    """On a machine where the second thread helps and the third does not."""
    config = InferenceConfig(device="cpu", max_batch=32, deadline_ms="auto")
    model = loaded(config, cores=3)
    machine = Machine(lambda _size: {1: 0.004, 2: 0.0021, 3: 0.002}[torch.get_num_threads()])
    monkeypatch.setattr(model, "launch", lambda packed: machine.evaluate(len(packed)))
    monkeypatch.setattr(model, "complete", lambda _batch, _packed: np.empty(0))
    before = torch.get_num_threads()
    tuned = tune(model, config, clock_s=machine.clock_s)
    assert model.engine.threads == 2
    assert tuned.limits == (32, pytest.approx(0.0021 / 4))
    torch.set_num_threads(before)
