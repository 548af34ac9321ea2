"""How records are parted into calls of the ledger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from azq.actor.lease import calls
from azq.wire.messages import GameRecord


def record(uid: int, size: int) -> GameRecord:
    return GameRecord(uid, actions=bytes(2), policies=bytes(size))


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 8), st.integers(1, 600))
def test_calls_hold_every_record_once_in_order_and_no_more_than_they_may(sizes, most, most_bytes):
    records = [record(uid, size) for uid, size in enumerate(sizes, start=1)]
    parts = list(calls(iter(records), most, most_bytes))
    assert [one for part in parts for one in part] == records
    for part, following in zip(parts, [*parts[1:], None], strict=False):
        weight = sum(len(one.policies) + 2 for one in part)
        assert 1 <= len(part) <= most
        assert weight <= most_bytes or len(part) == 1
        if following is not None:  # it was full: by number, or with the next one by bytes
            assert len(part) == most or weight + len(following[0].policies) + 2 > most_bytes


def test_small_records_fill_a_call_and_large_ones_part_it():
    assert [len(part) for part in calls(record(uid, 200) for uid in range(1, 601))] == [256, 256, 88]
    assert max(len(part) for part in calls(record(uid, 64_000) for uid in range(1, 257))) == 32
