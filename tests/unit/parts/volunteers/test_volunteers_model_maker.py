"""Networks for browsers: made once, kept by their hash, noted with what they must answer."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import onnxruntime
import pytest
import torch
from memory_broker import MemoryBus
from sharp_nets import sharp_bytes

from azq import games
from azq.bus.catalog import ModelCatalog
from azq.errors import WeightsError
from azq.inference.device import native
from azq.nets import NetSpec, unpack
from azq.parts.volunteers.model_maker import PROBES, make_model, probe_positions
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import WeightEvent

GAME = games.load("tic_tac_toe")


@pytest.fixture
def place(tmp_path):
    """A bus, a store, and a version that is published."""
    bus, store = MemoryBus(), open_store("file", directory=tmp_path)
    sha256, uri = store.put(sharp_bytes("mlp"))
    return bus, store, WeightEvent("ttt", 7, sha256, uri, 70, 0)


def test_a_version_is_made_once_and_found_by_others(place):
    bus, store, weights = place
    made = make_model(bus, store, GAME, weights, ModelCatalog(bus, "ttt"))
    catalog = ModelCatalog(bus, "ttt")
    assert catalog.find(8) is None
    bus.publish(keys.onnx("ttt"), encode(made_before := msgspec.structs.replace(made, version=8)))
    assert catalog.find(8) is None, "an older azq made it otherwise"
    assert catalog.all() == [made_before, made]
    bus.publish(keys.networks("ttt"), b"no message")
    assert catalog.find(7) == made == make_model(bus, store, GAME, weights, catalog)
    assert bus.length(keys.networks("ttt")) == 2
    data = store.get(made.uri, made.sha256)
    assert (made.version, made.size, made.sha256) == (7, len(data), hashlib.sha256(data).hexdigest())


def test_the_note_says_what_it_must_answer(place):
    bus, store, _ = place
    game = games.load("blob")
    sha256, uri = store.put(sharp_bytes("transformer"))
    made = make_model(bus, store, game, WeightEvent("blob", 7, sha256, uri, 70, 0), ModelCatalog(bus, "blob"))
    packed = np.frombuffer(made.positions, np.uint8).reshape(PROBES, -1)
    planes, scalars = (inputs.numpy() for inputs in unpack(torch.tensor(packed), NetSpec.of(game)))
    session = onnxruntime.InferenceSession(store.get(made.uri, made.sha256), providers=["CPUExecutionProvider"])
    for output, expected in zip(
        session.run(["logits", "values"], {"planes": planes, "scalars": scalars}), (made.logits, made.values), strict=True
    ):
        assert np.abs(output.reshape(-1) - np.frombuffer(expected, "<f4")).max() <= made.tolerance / 50
    assert 0 < made.tolerance < 0.02


def test_a_network_in_whole_numbers_must_answer_its_own_bits(place):
    bus, store, weights = place
    made = make_model(bus, store, GAME, weights, ModelCatalog(bus, "ttt"))
    assert made.tolerance == 0
    packed = np.frombuffer(made.positions, np.uint8).reshape(PROBES, -1)
    logits, values = np.empty((PROBES, 9), np.float16), np.empty((PROBES, 1), np.float16)
    native.PLAIN.Network(store.get(made.uri, made.sha256)).forward(packed, logits.view(np.uint16), values.view(np.uint16), 1)
    assert logits.astype("<f4").tobytes() == made.logits
    assert values.astype("<f4").tobytes() == made.values


def test_weights_of_another_game_are_refused_and_nothing_is_noted(place):
    bus, store, weights = place
    with pytest.raises(WeightsError, match="do not fit"):
        make_model(bus, store, games.load("connect_four"), weights, ModelCatalog(bus, "ttt"))
    assert bus.length(keys.networks("ttt")) == 0


@pytest.mark.parametrize("name", ["blob", "backgammon", "connect_four"])
def test_probes_are_different_positions_of_the_game_the_same_each_time(name):
    game = games.load(name)
    found = probe_positions(game, 12)
    assert (found == probe_positions(games.load(name), 12)).all()
    assert len({row.tobytes() for row in found}) > 6
