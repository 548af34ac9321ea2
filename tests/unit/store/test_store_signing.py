"""What a learner keeps is signed: an object that somebody else wrote, moved or changed is refused by name."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_doubles import DictPrefix

from azq.errors import ConfigError, StoreError
from azq.store.extents import Extent, is_object_name, layout, list_extents, read_spans
from azq.store.objects import FolderPrefix
from azq.store.signing import KEY_FILE, SignedPrefix, make_key, read_key
from azq.wire import keys

KEY, OTHER = b"k" * 32, b"o" * 32
DATA = b"games"
PIECE = Extent("segments/000001.seg", 1, 0, len(DATA), 0, hashlib.sha256(DATA).hexdigest())
NAMES = ["record", "purged.json", "claims/0000000001", "weights/0000000001.000000000000001", PIECE.name]


class OneValue:
    """A control plane of one key and perhaps runs."""

    def __init__(self, value: bytes | None = None, runs: int = 0) -> None:
        self.value, self.runs = value, runs

    def get(self, key: str) -> bytes | None:
        assert key == keys.STORE_KEY
        return self.value

    def exists(self, key: str) -> int:
        assert key == keys.RUNS
        return self.runs

    def set(self, key: str, value: bytes, nx: bool) -> None:
        assert key == keys.STORE_KEY
        self.value = self.value if nx and self.value else value


def plane(value: bytes | None = None, runs: int = 0) -> Any:
    return OneValue(value, runs)


@pytest.fixture
def signed() -> SignedPrefix:
    return SignedPrefix(DictPrefix(), "runs/a.1", KEY)


def objects(prefix: SignedPrefix) -> dict[str, bytes]:
    assert isinstance(prefix.prefix, DictPrefix)
    return prefix.prefix.objects


@pytest.mark.parametrize("name", NAMES)
def test_an_object_counts_as_it_was_written_and_no_other_way(signed, name):
    signed.write(name, DATA)
    assert (signed.names(), signed.read(name)) == ([name], DATA)
    (stored, data) = next(iter(objects(signed).items()))
    for prefix in (SignedPrefix(signed.prefix, "runs/a.2", KEY), SignedPrefix(signed.prefix, "runs/a.1", OTHER)):
        assert prefix.read(name) is None
        with pytest.raises(StoreError, match=rf"{prefix.folder}/{name}.* is not signed .*{KEY_FILE}.*azq runs sign"):
            prefix.names()
    objects(signed)[stored] = b"theirs" + data[6:]
    if name != PIECE.name:
        with pytest.raises(StoreError, match=f"runs/a.1/{name} in the store is not signed"):
            signed.read(name)
    signed.remove(name)
    assert objects(signed) == {}


def test_the_bytes_of_a_piece_are_those_of_its_signed_name(signed):
    signed.write(PIECE.name, DATA)
    objects(signed)[next(iter(objects(signed)))] = b"theirs"
    (spans,) = list_extents(signed).files.values()
    with pytest.raises(StoreError, match="is damaged in the store"):
        read_spans(signed, layout(spans))


@pytest.mark.parametrize("name", NAMES)
def test_an_object_without_a_mark_is_refused_until_it_is_trusted(signed, name):
    objects(signed)[name] = DATA
    with pytest.raises(StoreError, match=f"runs/a.1/{name} in the store is not signed"):
        signed.names()
    assert signed.sign() == 1
    assert (signed.names(), signed.read(name), len(objects(signed))) == ([name], DATA, 1)
    anew = SignedPrefix(signed.prefix, "runs/a.1", OTHER)
    assert anew.sign() == 1
    assert (anew.names(), anew.read(name), len(objects(signed))) == ([name], DATA, 1)


@settings(max_examples=50)
@given(
    st.text(max_size=30) | st.sampled_from(NAMES).flatmap(lambda name: st.builds(name.replace, st.sampled_from(name), st.text(max_size=3)))
)
def test_only_names_that_azq_writes_are_names(name):
    prefix = SignedPrefix(DictPrefix(), "runs/a.1", KEY)
    if is_object_name(name):
        assert name.isascii()
        assert not set(name.split("/")) & {"", ".", ".."}
        return
    for touch in (prefix.read, prefix.remove, lambda name: prefix.write(name, DATA)):
        with pytest.raises(StoreError, match="is no name of an object"):
            touch(name)
    prefix.prefix.write(name, DATA)
    assert prefix.names() == []


def test_no_link_in_a_shared_folder_leads_out_of_the_run(tmp_path):
    prefix, outside = FolderPrefix(tmp_path / "runs" / "a.1"), tmp_path / "outside"
    prefix.write("record", DATA)
    outside.mkdir()
    (tmp_path / "runs" / "a.1" / "claims").symlink_to(outside)
    for touch in (prefix.read, prefix.remove, lambda name: prefix.write(name, DATA)):
        with pytest.raises(StoreError, match="leads out of"):
            touch("claims/0000000001")
    assert not any(outside.iterdir())


def test_the_owner_makes_the_key_once_and_keeps_a_copy_that_an_empty_control_plane_takes(tmp_path):
    first = plane()
    with pytest.raises(StoreError, match="start its daemon"):
        read_key(first)
    key = make_key(first, tmp_path)
    assert make_key(first, tmp_path) == read_key(first) == key
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert make_key(plane(), tmp_path) == key, "after the control plane was lost"
    assert make_key(plane(OTHER), tmp_path) == key, "an empty one that had made its own"
    assert make_key(plane(OTHER, runs=1), tmp_path) == OTHER, "one with runs signs with its own"
    assert make_key(plane(OTHER), tmp_path / "new") == OTHER
    (tmp_path / KEY_FILE).write_text("no key")
    with pytest.raises(ConfigError, match=f"{KEY_FILE} cannot be used"):
        make_key(first, tmp_path)


def test_a_home_that_takes_no_copy_stops_no_daemon(tmp_path):
    (tmp_path / "file").touch()
    first = plane()
    assert make_key(first, tmp_path / "file" / "home") == read_key(first)
