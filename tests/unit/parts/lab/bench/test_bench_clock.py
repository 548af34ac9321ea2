"""The network replaced by a clock: what is modelled from a turn, and how the clock answers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from azq import games
from azq.actor import Progress
from azq.config import InferenceConfig
from azq.errors import ConfigError
from azq.inference.device.model import Model
from azq.inference.device.placement import place
from azq.nets import NetSpec, WeightsMeta, build, to_bytes
from azq.parts.lab.bench.clock import NETWORK, ClockEngine, TurnCost, modelled, seconds_of
from azq.parts.lab.bench.selfplay import Reading

GAME = games.load("connect_four")


@pytest.mark.parametrize(("text", "seconds"), [("2.2ms", 0.0022), ("1s", 1.0), ("0.5s", 0.5), ("10s", 10.0)])
def test_a_time_of_a_batch(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["2.2", "ms", "-1ms", "0ms", "11s", "1 s", "1m", "nan"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--network-clock"):
        seconds_of(text)


def progress(requests: int, evaluations: int, search_s: float) -> Progress:
    found = Progress()
    found.requests, found.evaluations, found.search_s = requests, evaluations, search_s
    return found


def test_a_turn_is_the_mean_between_two_marks() -> None:
    before = Reading(progress(10, 1000, 1.0), wall_s=0.0, thread_s=5.0, own_s=6.0, workers_s=1.0, brokers_s=2.0)
    after = Reading(progress(20, 9000, 3.0), wall_s=9.0, thread_s=8.0, own_s=12.0, workers_s=2.0, brokers_s=2.5)
    turn = TurnCost.between(before, after)
    assert turn.leaves == 800
    assert turn.serial_s == pytest.approx((3.0 - 2.0) / 10)
    assert turn.search_s == pytest.approx((6.0 - 1.0) / 10)
    assert turn.inference_s == pytest.approx(0.1)
    assert turn.brokers_s == pytest.approx(0.05)


def test_the_network_or_the_processes_are_the_limit() -> None:
    turn = TurnCost(leaves=8000, serial_s=0.001, search_s=0.009, inference_s=0.0, brokers_s=0.0)
    assert turn.leaves_per_s(1, 1, 0.002) == pytest.approx(800_000)
    assert turn.leaves_per_s(2, 3, 0.002) == pytest.approx(4_000_000)  # the network's
    assert turn.leaves_per_s(2, 3, 0.001) == pytest.approx(4_000_000)  # 2 x 8,000 leaves in 4 ms
    assert turn.cores(4_000_000) == pytest.approx(5.0)


def test_what_is_modelled_stays_within_six_cores() -> None:
    cheap = modelled(TurnCost(8000, 0.0005, 0.009, 0.0004, 0.0003), 0.0022)
    assert cheap["modelled_leaves_per_s"] == round(8000 / 0.0022)
    assert cheap["modelled_cores"] <= 6
    dear = modelled(TurnCost(8000, 0.1, 0.9, 0.1, 0.1), 0.0022)
    assert dear["modelled_leaves_per_s"] < 50_000
    assert dear["cores_of_goal"] > 100


def test_batches_end_one_after_the_other_and_use_no_cpu() -> None:
    config = InferenceConfig(device="cpu", max_batch=512, threads=1)
    engine = ClockEngine(config, place(config), clock_s=0.5)
    spec = NetSpec.of(GAME)
    model = Model(spec, NETWORK, config, engine=engine)
    model.load(to_bytes(build(NETWORK, spec), WeightsMeta(game=GAME.name, network=NETWORK.model_dump(), version=3)))
    packed = np.zeros((300, spec.packed_size), np.uint8)
    began_s, used_s = time.monotonic(), time.process_time()
    batches = [model.launch(packed), model.launch(packed)]
    assert not batches[0].done()
    logits, values = model.complete(batches[0], packed)
    first_s = time.monotonic() - began_s
    assert not batches[1].done()
    model.complete(batches[1], packed)
    both_s = time.monotonic() - began_s
    assert logits.shape == (300, 7)
    assert values.shape == (300, 1)
    assert len(np.unique(values)) > 10
    assert first_s >= 0.5
    assert both_s >= 1.0
    assert time.process_time() - used_s < 0.4
    assert engine.fallbacks == 0
