"""The set of stored game numbers behaves as a set and stays small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.replay.uids import UidSet


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
