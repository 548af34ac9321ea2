"""Networks that tabs must refuse: each is broken in its own way, and in no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from azq.drill.faults.tabs import ANSWERS, FLIPPED, HASH, broken
from azq.errors import AzqError
from azq.store import open_store
from azq.wire.messages import ModelEvent

DATA = bytes(range(256)) * 4


@pytest.fixture
def good(tmp_path: Path) -> ModelEvent:
    sha256, uri = open_store("file", directory=tmp_path).put(DATA)
    return ModelEvent(1, sha256, uri, len(DATA), b"", bytes(8), bytes(8), 1e-3)


def test_each_way_of_breaking_a_network_shows_where_it_should(tmp_path: Path, good: ModelEvent) -> None:
    store = open_store("file", directory=tmp_path)
    unnamed, flipped, answers = (broken(store, good, 2, way) for way in (HASH, FLIPPED, ANSWERS))
    with pytest.raises(AzqError):
        store.get(unnamed.uri, unnamed.sha256)
    found = store.get(flipped.uri, flipped.sha256)
    assert found != DATA
    assert len(found) == len(DATA)
    assert store.get(answers.uri, answers.sha256) == DATA
    assert answers.values != good.values
    assert flipped.values == unnamed.values == good.values


def test_the_next_good_one_is_the_same_under_another_version(tmp_path: Path, good: ModelEvent) -> None:
    assert broken(open_store("file", directory=tmp_path), good, 2, "") == msgspec.structs.replace(good, version=2)
