"""The evaluator in the caller's own process."""

from __future__ import annotations

import numpy as np
import pytest
from inference_doubles import CONFIG, RUN, SPEC, Shelf, observations, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.errors import BrokerUnavailable, EvaluatorFailure, WeightsError
from azq.inference.ask.local import LocalEvaluator
from azq.inference.weights import WeightCatalog
from azq.wire import codec, keys
from azq.wire.messages import WeightEvent


@pytest.fixture
def control():
    return MemoryBus()


@pytest.fixture
def shelf(control):
    return Shelf(control)


@pytest.fixture
def following(control, shelf):
    evaluator = LocalEvaluator.from_catalog(SPEC, WeightCatalog(control, RUN), shelf.fetch(None), CONFIG)
    yield evaluator
    evaluator.close()


def ask(evaluator, packed, **options):
    return evaluator.result(evaluator.submit(packed, **options), timeout_s=PATIENCE_S)


def test_from_a_file(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(weights(1, version=5))
    evaluator = LocalEvaluator.from_file(SPEC, path, CONFIG)
    assert evaluator.weight_version == 5
    packed = observations(6)
    handle = evaluator.submit(packed)
    packed[:] = 0  # the caller may reuse the array at once
    evaluation = evaluator.result(handle, timeout_s=PATIENCE_S)
    assert evaluation.weight_version == 5
    assert np.array_equal(evaluation.logits, ask(evaluator, observations(6), weight_version=5).logits)
    with pytest.raises(EvaluatorFailure, match="version 4 are not loaded, only version 5 is"):
        ask(evaluator, packed, weight_version=4)
    assert evaluator.evaluations == 12
    evaluator.close()


@pytest.mark.parametrize("data", [None, b"", b"noise", weights(1)[:-1], weights(1, spoil="stem.bias")])
def test_a_bad_file_is_named(tmp_path, data):
    path = tmp_path / "w.safetensors"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"w\.safetensors"):
        LocalEvaluator.from_file(SPEC, path, CONFIG)


def test_it_follows_the_runs_weights(shelf, following, monkeypatch):
    monkeypatch.setattr("azq.inference.ask.local.REFRESH_S", 0.0)
    with pytest.raises(EvaluatorFailure, match="no usable weights"):
        ask(following, observations(3))
    shelf.publish(1, weights(1))
    first = ask(following, observations(3))
    shelf.publish(2, weights(2, version=2))
    until(lambda: ask(following, observations(3)).weight_version == 2, "version 2 is used")
    assert np.array_equal(ask(following, observations(3), weight_version=1).logits, first.logits)
    with pytest.raises(EvaluatorFailure, match="version 9 were never published"):
        ask(following, observations(3), weight_version=9)


def test_bad_weights_leave_the_last_good_ones_in_use(control, shelf, following, monkeypatch):
    monkeypatch.setattr("azq.inference.ask.local.REFRESH_S", 0.0)
    shelf.publish(1, weights(1))
    shelf.publish(2, weights(2, version=2)[:-3])
    control.publish(keys.weights(RUN), b"not an event")
    shelf.publish(3, weights(3, version=3), sha256="f" * 64)
    assert ask(following, observations(3)).weight_version == 1
    with pytest.raises(EvaluatorFailure, match="is damaged: not ffff"):
        ask(following, observations(3), weight_version=3)
    shelf.publish(4, weights(4, version=4))
    assert ask(following, observations(3)).weight_version == 4


def test_with_weights_at_hand_an_outage_stops_nothing(control, shelf, following, monkeypatch):
    monkeypatch.setattr("azq.inference.ask.local.REFRESH_S", 0.0)
    shelf.publish(1, weights(1))
    ask(following, observations(3))

    def gone(*_args, **_options):
        raise BrokerUnavailable("nobody answers")

    monkeypatch.setattr(control, "after", gone)
    assert ask(following, observations(3)).weight_version == 1
    with pytest.raises(BrokerUnavailable):
        ask(following, observations(3), weight_version=2)


def test_a_version_is_known_by_its_first_event(control):
    catalog = WeightCatalog(control, RUN)
    assert catalog.find(0) is None
    for version, uri in ((2, "b"), (1, "a"), (2, "c")):
        control.publish(keys.weights(RUN), codec.encode(WeightEvent(RUN, version, "", uri, 0, 0)))
    assert catalog.refresh()
    assert not catalog.refresh()
    assert [event.version for event in catalog.newest_first()] == [2, 1]
    assert catalog.find(0) is catalog.find(2)
    assert catalog.find(2).uri == "b"
