"""Models, their weights and which of them stay resident."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from inference_doubles import CONFIG, NETWORK, SPEC, observations, weights

from azq.errors import WeightsError
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.weights import ResidentModels, fetch_from
from azq.nets import NetSpec, WeightsMeta, from_bytes, network_of
from azq.store import open_store
from azq.wire.messages import WeightEvent


def make_model(**changes: Any) -> Model:
    return Model(SPEC, NETWORK, Engine(CONFIG.model_copy(update=changes)))


def event(version: int, data: bytes) -> WeightEvent:
    return WeightEvent("r1", version, hashlib.sha256(data).hexdigest(), f"shelf:{version}", 0, 0)


@pytest.fixture
def shelf():
    blobs = {version: weights(version, version=version) for version in range(1, 8)}
    return {version: (event(version, data), data) for version, data in blobs.items()}


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_a_model_evaluates_what_it_loaded(precision):
    model = make_model(precision=precision)
    model.load(weights(1, version=4))
    assert model.version == 4
    logits, values = model.evaluate(observations(10))
    assert logits.shape == (10, 7)
    assert values.shape == (10, 1)
    assert logits.dtype == values.dtype == np.float16
    assert (np.abs(values) <= 1).all()
    again = make_model(precision=precision)
    again.load(weights(1, version=4))
    assert np.array_equal(again.evaluate(observations(10))[0], logits)


def test_read_only_observations_are_taken():
    model = make_model(precision="float32")
    model.load(weights(1))
    packed = observations(4)
    frozen = np.frombuffer(packed.tobytes(), np.uint8).reshape(packed.shape)
    assert np.array_equal(model.evaluate(frozen)[0], model.evaluate(packed)[0])


def test_networks_with_scalars_take_the_plain_pass():
    spec = NetSpec(3, 6, 7, 4, 7, 1)
    model = Model(spec, NETWORK, Engine(CONFIG))
    model.load(weights(1, spec=spec))
    assert model.evaluate(observations(5, spec=spec))[0].shape == (5, 7)


def test_damaged_weights_of_a_store_are_refused_and_hashed_once(tmp_path, monkeypatch):
    store = open_store("file", directory=tmp_path)
    resident = ResidentModels(partial(Model, SPEC, engine=Engine(CONFIG)), fetch_from(store), capacity=2)
    good, bad = weights(1, version=1), weights(2, version=2)
    events = [WeightEvent("r1", version, *store.put(data), 0, 0) for version, data in ((1, good), (2, bad))]
    (tmp_path / f"{events[1].sha256}.safetensors").write_bytes(good)  # sound by itself, and not what was announced
    hashed, sha256 = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: hashed.append(len(data)) or sha256(data))
    resident.get(events[0])
    assert hashed == [len(good)]
    with pytest.raises(WeightsError, match="is damaged: its hash is"):
        resident.get(events[1])
    assert resident.versions == (1,)


def test_the_least_recently_used_version_goes_and_comes_back(shelf):
    fetched, made = [], []

    def fetch(announced):
        fetched.append(announced.version)
        return shelf[announced.version][1]

    def make(_network):
        made.append(make_model())
        return made[-1]

    resident = ResidentModels(make, fetch, capacity=3)
    first = resident.get(shelf[1][0]).evaluate(observations(3))[0]
    for version in (2, 3, 1, 4):  # 1 is used again, so 2 is the oldest
        assert resident.get(shelf[version][0]).version == version
    assert set(resident.versions) == {1, 3, 4}
    assert np.array_equal(resident.get(shelf[1][0]).evaluate(observations(3))[0], first)
    resident.get(shelf[2][0])
    assert fetched == [1, 2, 3, 4, 2]
    assert len(made) == 3  # an overwritten model is used again


def test_the_current_version_is_never_overwritten(shelf):
    resident = ResidentModels(partial(Model, SPEC, engine=Engine(CONFIG)), lambda announced: shelf[announced.version][1], capacity=2)
    for version in (1, 2, 3, 4):
        resident.get(shelf[version][0], keep=1)
        assert 1 in resident.versions


def test_bad_weights_leave_the_good_ones_resident(shelf):
    def fetch(announced):
        data = shelf[announced.version][1]
        return data[:-1] if announced.version == 3 else data

    resident = ResidentModels(partial(Model, SPEC, engine=Engine(CONFIG)), fetch, capacity=2)
    resident.get(shelf[1][0])
    resident.get(shelf[2][0])
    with pytest.raises(WeightsError):
        resident.get(shelf[3][0])
    assert resident.versions == (1, 2)
    assert resident.get(shelf[4][0], keep=2).version == 4


def test_weights_name_their_network():
    assert network_of(from_bytes(weights(1))[1]) == NETWORK
    with pytest.raises(WeightsError, match="describe no network"):
        network_of(WeightsMeta("connect_four", network={"kind": "telepathy"}))
