"""The set of stored game numbers behaves as a set and stays small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.replay.uids import UidSet, pack, packed_has


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
