"""Arrays of a game record to bytes and back."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.errors import WireError
from azq.search.portable import PortableRecord
from azq.wire.arrays import LARGEST_UID, arrays_of, pack_record, size_of, unpack_record
from azq.wire.codec import decode, encode
from azq.wire.messages import GameRecord


def game(plies: int, num_actions: int, value_size: int, seed: int = 0) -> PortableRecord:
    dice = np.random.default_rng(seed)
    return PortableRecord(
        uid=seed + 1,
        actions=dice.integers(0, 2**16, plies, np.uint16),
        policies=dice.random((plies, num_actions)).astype(np.float16),
        root_values=dice.random((plies, value_size)).astype(np.float32),
        simulations=dice.integers(0, 2**16, plies, np.uint16),
        weight_versions=dice.integers(0, 2**32, plies, np.uint32),
        returns=np.zeros(2, np.float32),
        terminal=False,
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**32))
def test_round_trip(plies, num_actions, value_size, seed):
    record = game(plies, num_actions, value_size, seed)
    packed = decode(encode(pack_record(record)), GameRecord)
    arrays = unpack_record(packed, num_actions, value_size)
    assert packed.uid == record.uid
    assert sorted(arrays) == ["actions", "policies", "root_values", "simulations", "weight_versions"]
    for name, array in arrays.items():
        original = getattr(record, name)
        assert array.dtype == original.dtype
        assert array.shape == original.shape
        assert array.flags.writeable
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, original)


def test_a_game_without_plies_has_empty_arrays():
    arrays = unpack_record(GameRecord(1), 7, 1)
    assert {name: array.shape for name, array in arrays.items()} == {
        "actions": (0,),
        "policies": (0, 7),
        "root_values": (0, 1),
        "simulations": (0,),
        "weight_versions": (0,),
    }


def test_arrays_that_are_not_contiguous_are_packed_in_order():
    record = game(4, 3, 1)
    turned = replace(record, actions=record.actions[::-1], policies=record.policies[:, ::-1])
    arrays = unpack_record(pack_record(turned), 3, 1)
    np.testing.assert_array_equal(arrays["actions"], record.actions[::-1])
    np.testing.assert_array_equal(arrays["policies"], record.policies[:, ::-1])


@pytest.mark.parametrize("name", ["policies", "root_values", "simulations", "weight_versions"])
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"", lambda data: data * 2])
def test_a_length_that_disagrees_is_named(name, change):
    packed = pack_record(game(3, 5, 1))
    broken = msgspec.structs.replace(packed, **{name: change(getattr(packed, name))})
    with pytest.raises(WireError, match=f"game 1: {name} has .* expected"):
        unpack_record(broken, 5, 1)


def test_half_an_action_is_refused():
    with pytest.raises(WireError, match="no whole number of plies"):
        unpack_record(GameRecord(1, b"\0\0\0"), 5, 1)


@pytest.mark.parametrize("uid", [0, -1, LARGEST_UID + 1])
def test_a_number_no_game_has_is_refused(uid):
    with pytest.raises(WireError, match="outside"):
        unpack_record(GameRecord(uid), 5, 1)


def sparse(whole: np.ndarray) -> GameRecord:
    """A record of as many plies, whose policies travel without their zeros."""
    plies = len(whole)
    bits = np.packbits(whole.view(np.uint16) != 0, axis=1, bitorder="little").tobytes()
    entries = whole[whole.view(np.uint16) != 0].tobytes()
    return GameRecord(1, bytes(2 * plies), entries, bytes(4 * plies), bytes(2 * plies), bytes(4 * plies), bits)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 20), st.integers(0, 2**32))
def test_policies_without_their_zeros_are_whole_again(plies, num_actions, seed):
    rng = np.random.default_rng(seed)
    whole = (rng.random((plies, num_actions)) * (rng.random((plies, num_actions)) < 0.2)).astype("<f2")
    record = sparse(whole)
    assert arrays_of(record, num_actions, 1, "it")["policies"].tobytes() == whole.tobytes()
    assert size_of(record) == size_of(msgspec.structs.replace(record, support=b"")) + len(record.support)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"support": b"\1"}, "support of 1 bytes does not fit 3 plies"),
        ({"support": b"\3\1\1"}, "6 bytes, its support names 4 entries"),
        ({"policies": b"12345"}, "5 bytes, its support names 3 entries"),
    ],
)
def test_a_support_that_does_not_fit_is_refused(change, said):
    record = msgspec.structs.replace(sparse(np.eye(3, 5, dtype="<f2")), **change)
    with pytest.raises(WireError, match=said):
        arrays_of(record, 5, 1, "it")
