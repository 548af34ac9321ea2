"""The batcher as a pure function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.bus.base import Entry
from azq.inference.device.forward import bucket_of, buckets, gpu_buckets
from azq.inference.device.tuning import BatchLimits
from azq.inference.serve.requests import BadRequest, BatchPlan, Group, Pending, name_of, plan, read_request, refusal, replies
from azq.nets import NetSpec
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest

MAX_BATCH = 100


def waiting(name: str, count: int, arrived_s: float, version: int = 1) -> Pending:
    """A request of the run of this name."""
    request = EvalRequest(1, "client", version, count, b"", 0)
    return Pending(name, Entry("stream", "1-1", b""), request, np.zeros((count, 0), np.uint8), arrived_s)


def grouped(queue: Sequence[Pending]) -> dict[Group, list[Pending]]:
    groups: dict[Group, list[Pending]] = {}
    for pending in queue:
        groups.setdefault(group_of(pending), []).append(pending)
    return groups


def group_of(pending: Pending) -> Group:
    return Group(pending.run, pending.request.weight_version)


def members_of(queue: Sequence[Pending], now_s: float, **limits: Any) -> list[int]:
    """Whose turn it is, by place in the queue."""
    chosen = decide(queue, now_s, **limits).members
    return [queue.index(pending) for pending in chosen]


def decide(queue: Sequence[Pending], now_s: float, enough: int, deadline_s: float, max_batch: int = MAX_BATCH) -> BatchPlan:
    """With the same limits for every group."""
    return plan(grouped(queue), now_s, max_batch=max_batch, limits=lambda _group: BatchLimits(enough, deadline_s))


queues = st.lists(
    st.builds(
        waiting,
        name=st.sampled_from(["r1", "r2"]),
        version=st.integers(0, 2),
        count=st.integers(1, MAX_BATCH),
        arrived_s=st.floats(0, 10, allow_nan=False),
    ),
    max_size=30,
).map(lambda queue: sorted(queue, key=lambda pending: pending.arrived_s))
given_limits = {"enough": st.integers(1, MAX_BATCH), "deadline_s": st.floats(0, 5, allow_nan=False)}


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_a_batch_fits_shares_weights_and_takes_the_oldest_first(queue, now_s, enough, deadline_s):
    decision = decide(queue, now_s, enough, deadline_s)
    chosen = decision.members
    if not chosen:
        assert decision.group is None
        return
    assert sum(pending.count for pending in chosen) <= MAX_BATCH
    assert {group_of(pending) for pending in chosen} == {decision.group}
    of_group = grouped(queue)[decision.group]
    assert list(chosen) == of_group[: len(chosen)]
    if len(chosen) < len(of_group):
        assert sum(pending.count for pending in chosen) + of_group[len(chosen)].count > MAX_BATCH


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_it_waits_only_while_nothing_is_full_or_due(queue, now_s, enough, deadline_s):
    decision = decide(queue, now_s, enough, deadline_s)
    if decision.members:
        assert decision.wait_s == 0.0
        return
    if not queue:
        assert decision.wait_s == math.inf
        return
    for members in grouped(queue).values():
        assert sum(pending.count for pending in members) < enough
    assert decision.wait_s == min(deadline_s - (now_s - pending.arrived_s) for pending in queue) > 0.0


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_after_the_wait_something_goes(queue, now_s, enough, deadline_s):
    decision = decide(queue, now_s, enough, deadline_s)
    if queue and not decision.members:
        assert 0 in members_of(queue, now_s + decision.wait_s + 1e-6, enough=enough, deadline_s=deadline_s)  # the oldest of all


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_a_queue_drains_in_finite_batches_without_loss(queue, now_s, enough, deadline_s):
    seen: list[Pending] = []
    left = list(queue)
    while left:
        members = decide(left, now_s + 10, enough, deadline_s).members
        assert members
        seen += members
        left = [pending for pending in left if pending not in members]
    assert sorted(map(id, seen)) == sorted(map(id, queue))


def test_a_full_group_goes_before_an_older_one_that_may_wait():
    queue = [waiting("a", 1, 0.0), waiting("b", 50, 0.5), waiting("b", 50, 0.6)]
    assert members_of(queue, 1.0, enough=100, deadline_s=5.0) == [1, 2]
    assert members_of(queue, 5.0, enough=100, deadline_s=5.0) == [0]


def test_what_waits_goes_when_the_first_deadline_of_all_is_over():
    queue = [waiting("a", 10, 1.0), waiting("b", 10, 1.5), waiting("a", 10, 1.75)]
    both, first = (Group("a", 1), (queue[0], queue[2])), (Group("a", 1), (queue[0],))
    assert decide(queue, 2.0, 30, 2.0) == BatchPlan(None, (), 1.0)
    assert decide(queue, 3.0, 30, 2.0) == BatchPlan(*both, 0.0)
    assert decide(queue, 2.0, 20, 2.0) == BatchPlan(*both, 0.0)
    assert decide(queue, 2.0, 30, 2.0, max_batch=20) == BatchPlan(None, (), 1.0)
    assert decide(queue, 2.0, 30, 2.0, max_batch=19) == BatchPlan(*first, 0.0)


def test_a_request_beyond_the_largest_batch_goes_alone():
    queue = [waiting("a", 30, 0.0), waiting("a", 1, 0.5)]
    assert members_of(queue, 1.0, enough=100, deadline_s=5.0, max_batch=20) == [0]


def test_of_groups_that_may_go_the_one_with_the_oldest_request_goes_first():
    queue = [waiting("a", 1, 0.0), waiting("b", 1, 0.5), waiting("b", 1, 0.6), waiting("a", 1, 0.7)]
    assert members_of(queue, 9.0, enough=100, deadline_s=5.0) == [0, 3]
    again = [*queue[1:3], waiting("c", 1, 0.2)]  # tried a second time: behind the others, and older
    assert members_of(again, 9.0, enough=100, deadline_s=5.0) == [2]


SPEC = NetSpec(planes=1, rows=1, cols=8, scalars=0, num_actions=3, value_size=1)


def read(legal: bytes, count: int = 2, packed: bytes = bytes(2)) -> Pending:
    request = EvalRequest(1, "client", 1, count, packed, 0, 1, legal)
    return read_request("r1", Entry("stream", "1-1", codec.encode(request)), SPEC, MAX_BATCH, 0.0)


def test_each_request_gets_the_logits_that_it_asks_for():
    logits, values = np.arange(12, dtype=np.float16).reshape(4, 3), np.arange(4, dtype=np.float16).reshape(4, 1)
    told = [codec.decode(frame, EvalReply) for _, frame in replies([read(b""), read(bytes([0b110, 0b001]))], 1, (logits, values))]
    assert [np.frombuffer(reply.logits, np.float16).tolist() for reply in told] == [[0, 1, 2, 3, 4, 5], [7, 8, 9]]
    assert [np.frombuffer(reply.values, np.float16).tolist() for reply in told] == [[0, 1], [2, 3]]


def test_a_refusal_leaves_the_client_to_ask_again_unless_it_is_final():
    request = EvalRequest(7, "client", 3, 1, b"x", 0)
    name, frame = refusal(request, "not loaded yet")
    assert (name, codec.decode(frame, EvalReply)) == (keys.reply("client"), EvalReply(7, 3, 0, b"", b"", "not loaded yet", False))
    assert codec.decode(refusal(request, "too large", final=True)[1], EvalReply).final


def test_a_request_may_fill_a_batch_and_be_no_larger():
    assert read(b"", MAX_BATCH, bytes(MAX_BATCH)).count == MAX_BATCH
    with pytest.raises(BadRequest, match=f"of {MAX_BATCH + 1} leaves exceeds inference.max_batch = {MAX_BATCH}") as refused:
        read(b"", MAX_BATCH + 1, bytes(MAX_BATCH + 1))
    assert not refused.value.final, "a worker with larger batches may answer"


def test_a_request_that_was_claimed_or_sent_before_is_suspect():
    def suspect(sends: int, claimed: bool) -> bool:
        request = EvalRequest(1, "client", 1, 1, b"x", 0, sends, b"")
        return read_request("r1", Entry("stream", "1-1", codec.encode(request)), SPEC, MAX_BATCH, 0.0, claimed=claimed).suspect

    assert [suspect(1, False), suspect(2, False), suspect(1, True)] == [False, True, True]
    assert not read(b"").suspect


@pytest.mark.parametrize(("count", "packed"), [(0, b""), (2, b"x"), (2, b"xyz"), (0, b"x")])
def test_leaves_of_another_size_or_none_are_refused(count, packed):
    with pytest.raises(BadRequest, match=f"holds {len(packed)} bytes, not {count} leaves of 1 bytes"):
        read(b"", count, packed)


@pytest.mark.parametrize("legal", [b"x", b"xyz"])
def test_bits_for_other_leaves_are_refused(legal):
    with pytest.raises(BadRequest, match="bytes of legal actions, not 3 bits a leaf"):
        read(legal)


@given(st.integers(1, 5000), st.integers(1, 8))
def test_buckets_ascend_to_the_largest_batch_and_waste_little(max_batch, per_octave):
    sizes = buckets(max_batch, per_octave=per_octave)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] == max_batch
    for count in range(1, max_batch + 1, max(1, max_batch // 50)):
        size = bucket_of(count, sizes)
        assert count <= size <= max(count + 1, math.ceil(count * (1 + 1 / per_octave)))


def test_bucket_edges():
    sizes = buckets(96, per_octave=4)
    assert sizes[-5:] == (48, 56, 64, 80, 96)
    assert [bucket_of(count, sizes) for count in (1, 48, 49, 56, 57, 64, 65, 96)] == [1, 48, 56, 56, 64, 64, 80, 96]
    with pytest.raises(ValueError, match="97 leaves exceed the largest bucket of 96"):
        bucket_of(97, sizes)


def test_buckets_below_the_smallest_are_left_out():
    assert buckets(96, per_octave=2, smallest=16) == (16, 24, 32, 48, 64, 96)
    assert buckets(96, per_octave=2, smallest=17) == (24, 32, 48, 64, 96)
    assert buckets(8, per_octave=2, smallest=16) == (8,)
    assert buckets(1, per_octave=4) == (1,)


@given(max_batch=st.integers(1, 100_000))
def test_sizes_on_a_gpu_are_few_and_none_is_far_from_the_next(max_batch):
    sizes = gpu_buckets(max_batch)
    assert sizes == tuple(sorted(set(sizes)))
    assert (sizes[0], sizes[-1]) == (min(64, max_batch), max_batch)
    assert all(larger <= (2 if larger <= 2048 else 1.5) * smaller for smaller, larger in pairwise(sizes))
    assert len(sizes) <= 18
    assert gpu_buckets(20_000) == (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 20000)


def test_leaves_have_a_name_of_32_digits_that_is_theirs_alone():
    names = {name_of(packed) for packed in (b"", b"\0", b"\0\0", b"leaves")}
    assert len(names) == 4
    assert {len(name) for name in names} == {32}  # of the keys under which notes about them are kept
    assert name_of(b"leaves") in names
