"""The batcher as a pure function."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.inference.device.forward import bucket_of, buckets
from azq.inference.device.tuning import BatchLimits
from azq.inference.serve.requests import BatchPlan, Waiting, plan

MAX_BATCH = 100
queues = st.lists(
    st.builds(
        Waiting,
        group=st.tuples(st.sampled_from(["r1", "r2"]), st.integers(0, 2)),
        count=st.integers(1, MAX_BATCH),
        arrived_s=st.floats(0, 10, allow_nan=False),
    ),
    max_size=30,
).map(lambda queue: sorted(queue, key=lambda waiting: waiting.arrived_s))
given_limits = {"enough": st.integers(1, MAX_BATCH), "deadline_s": st.floats(0, 5, allow_nan=False)}


def limits_of(enough, deadline_s):
    """The same limits for every group."""
    return lambda _group: BatchLimits(enough, deadline_s)


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_a_batch_fits_shares_weights_and_takes_the_oldest_first(queue, now_s, enough, deadline_s):
    members = plan(queue, now_s, max_batch=MAX_BATCH, limits=limits_of(enough, deadline_s)).members
    if not members:
        return
    chosen = [queue[index] for index in members]
    assert sum(waiting.count for waiting in chosen) <= MAX_BATCH
    assert len({waiting.group for waiting in chosen}) == 1
    of_group = [index for index, waiting in enumerate(queue) if waiting.group == chosen[0].group]
    assert list(members) == of_group[: len(members)]
    if len(members) < len(of_group):
        assert sum(waiting.count for waiting in chosen) + queue[of_group[len(members)]].count > MAX_BATCH


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_it_waits_only_while_nothing_is_full_or_due(queue, now_s, enough, deadline_s):
    decision = plan(queue, now_s, max_batch=MAX_BATCH, limits=limits_of(enough, deadline_s))
    if decision.members:
        assert decision.wait_s == 0.0
        return
    if not queue:
        assert decision.wait_s == math.inf
        return
    for group in {waiting.group for waiting in queue}:
        assert sum(waiting.count for waiting in queue if waiting.group == group) < enough
    assert decision.wait_s == min(deadline_s - (now_s - waiting.arrived_s) for waiting in queue) > 0.0


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_after_the_wait_something_goes(queue, now_s, enough, deadline_s):
    decision = plan(queue, now_s, max_batch=MAX_BATCH, limits=limits_of(enough, deadline_s))
    if queue and not decision.members:
        later = plan(queue, now_s + decision.wait_s + 1e-6, max_batch=MAX_BATCH, limits=limits_of(enough, deadline_s))
        assert 0 in later.members  # the oldest of all


@given(queue=queues, now_s=st.floats(10, 20, allow_nan=False), **given_limits)
def test_a_queue_drains_in_finite_batches_without_loss(queue, now_s, enough, deadline_s):
    left, seen = list(queue), []
    while left:
        members = plan(left, now_s + 10, max_batch=MAX_BATCH, limits=limits_of(enough, deadline_s)).members
        assert members
        seen += [left[index] for index in members]
        left = [waiting for index, waiting in enumerate(left) if index not in members]
    assert sorted(map(repr, seen)) == sorted(map(repr, queue))


def test_a_full_group_goes_before_an_older_one_that_may_wait():
    queue = [Waiting("a", 1, 0.0), Waiting("b", 50, 0.5), Waiting("b", 50, 0.6)]
    assert plan(queue, 1.0, max_batch=100, limits=limits_of(100, 5.0)).members == (1, 2)
    assert plan(queue, 5.0, max_batch=100, limits=limits_of(100, 5.0)).members == (0,)


def test_what_waits_goes_when_the_first_deadline_of_all_is_over():
    queue = [Waiting("a", 10, 1.0), Waiting("b", 10, 1.5), Waiting("a", 10, 1.75)]
    assert plan(queue, 2.0, max_batch=100, limits=limits_of(30, 2.0)) == BatchPlan((), 1.0)
    assert plan(queue, 3.0, max_batch=100, limits=limits_of(30, 2.0)) == BatchPlan((0, 2), 0.0)
    assert plan(queue, 2.0, max_batch=100, limits=limits_of(20, 2.0)) == BatchPlan((0, 2), 0.0)
    assert plan(queue, 2.0, max_batch=20, limits=limits_of(30, 2.0)) == BatchPlan((), 1.0)
    assert plan(queue, 2.0, max_batch=19, limits=limits_of(30, 2.0)) == BatchPlan((0,), 0.0)


def test_of_groups_that_may_go_the_one_with_the_oldest_request_goes_first():
    queue = [Waiting("a", 1, 0.0), Waiting("b", 1, 0.5), Waiting("b", 1, 0.6), Waiting("a", 1, 0.7)]
    assert plan(queue, 9.0, max_batch=100, limits=limits_of(100, 5.0)).members == (0, 3)
    again = [*queue[1:3], Waiting("c", 1, 0.2)]  # tried a second time: behind the others, and older
    assert plan(again, 9.0, max_batch=100, limits=limits_of(100, 5.0)).members == (2,)


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
