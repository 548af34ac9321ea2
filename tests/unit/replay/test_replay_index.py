"""The set of stored game numbers behaves as a set and stays small."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.replay.index import UidSet, pack, packed_has


@given(st.lists(st.integers(1, 300_000)))
def test_behaves_as_a_set(numbers):
    uids, model = UidSet(), set()
    for uid in numbers:
        assert uids.add(uid) == (uid not in model)
        model.add(uid)
    assert len(uids) == len(model)
    assert all(uid in uids for uid in model)
    assert 300_001 not in uids


def test_refuses_numbers_below_one():
    with pytest.raises(ValueError, match="below 1"):
        UidSet().add(0)


def test_a_stray_large_number_costs_one_page():
    uids = UidSet()
    uids.add(2**62)
    assert 2**62 in uids
    assert len(uids._pages) == 1


NUMBERS = st.sets(st.one_of(st.integers(1, 70_000), st.integers(2**40, 2**40 + 100)))


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
def test_packed_sets_merge_as_sets_that_share_nothing(first, second):
    packed = [pack(np.array(sorted(numbers), np.uint64)) for numbers in (first, second)]
    uids = UidSet()
    assert uids.merge(packed[0])
    assert len(uids) == len(first)
    assert uids.merge(packed[1]) is not bool(first & second)
    wanted = first if first & second else first | second
    assert len(uids) == len(wanted)
    looked_at = first | second | {1, 65_535, 65_536}
    assert {uid for uid in looked_at if uid in uids} == wanted
    assert {uid for uid in looked_at if packed_has(packed[1], uid)} == second


def test_a_dense_packed_set_is_small():
    assert sum(map(len, pack(np.arange(1, 1_000_001, dtype=np.uint64)).values())) < 1_000


EDGES = [1, 7, 8, 40_000, 65_535, 65_536, 65_537, 131_072]  # of bytes and pages


@pytest.mark.parametrize("uid", EDGES)
def test_a_number_is_itself_and_no_other(uid):
    uids = UidSet()
    assert uids.add(uid) is True
    assert uids.add(uid) is False
    packed = pack(np.array([uid], np.uint64))
    around = sorted({*EDGES, 0, uid - 1, uid + 1, uid + 8, uid + 65_536})
    assert [other for other in around if other in uids] == [other for other in around if packed_has(packed, other)] == [uid]
    merged = UidSet()
    assert merged.merge(packed) is True
    assert (len(uids), len(merged), uids.highest, merged.highest) == (1, 1, uid, uid)
    assert merged.merge(packed) is False
    assert (len(merged), merged.add(uid)) == (1, False)


def test_an_empty_set_has_no_highest_number_and_lacks_all():
    assert (len(UidSet()), UidSet().highest, UidSet().gaps(0), UidSet().gaps(3)) == (0, 0, [], [(1, 3)])


@pytest.mark.parametrize(
    ("numbers", "last", "gaps"),
    [
        ([1, 2, 3], 3, []),
        ([1, 2, 3], 5, [(4, 5)]),
        ([1, 2, 3], 2, []),
        ([2, 5], 6, [(1, 1), (3, 4), (6, 6)]),
        ([2, 5], 5, [(1, 1), (3, 4)]),
        ([65_535, 65_537], 65_537, [(1, 65_534), (65_536, 65_536)]),
        ([65_534], 65_536, [(1, 65_533), (65_535, 65_536)]),
        ([1, 131_072], 131_073, [(2, 131_071), (131_073, 131_073)]),
        (range(1, 65_537), 65_536, []),
    ],
)
def test_gaps_are_the_spans_between_numbers(numbers, last, gaps):
    uids = UidSet()
    for uid in numbers:
        uids.add(uid)
    assert uids.gaps(last) == gaps


def test_packed_sets_are_pages_of_65536_bits():
    packed = pack(np.array([1, 65_535, 65_536, 131_081], np.uint64))
    pages = {page: zlib.decompress(bits) for page, bits in packed.items()}
    assert pages == {0: b"\2" + bytes(8190) + b"\x80", 1: b"\1" + bytes(8191), 2: b"\0\2" + bytes(8190)}


def test_pages_that_are_not_of_one_size_are_refused():
    uids = UidSet()
    assert uids.merge({0: zlib.compress(b"\2" + bytes(8191))}) is True
    with pytest.raises(OverflowError):
        uids.merge({1: zlib.compress(bytes(8192) + b"\1")})
    with pytest.raises(zlib.error):
        uids.merge({1: b"noise"})
    assert (len(uids), 1 in uids) == (1, True)
