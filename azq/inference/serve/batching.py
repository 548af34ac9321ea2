"""Which requests are evaluated together, and when: full or deadline. Pure functions; no clock, no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from azq.inference.device.tuning import Limits


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request in the queue, as the batcher sees it."""

    group: Hashable  # requests of one group share weights: (run, weight version)
    count: int  # leaves
    arrived_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: evaluate `members` (positions in the queue, oldest first), or wait at most `wait_s` for more."""

    members: tuple[int, ...]
    wait_s: float  # 0 with members; infinite for an empty queue


def plan(waiting: Sequence[Waiting], now_s: float, *, max_batch: int, limits: Callable[[Hashable], Limits]) -> Plan:
    """The next batch of a queue in order of arrival.

    A group may go once it holds `enough` leaves of its limits, once its next request would exceed `max_batch`, or once its
    oldest request is as old as its deadline. Of the groups that may go, the one whose oldest request waits longest goes first.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, request in enumerate(waiting):
        groups.setdefault(request.group, []).append(index)
    ready: list[list[int]] = []
    wait_s = float("inf")
    for group, indices in groups.items():
        enough, deadline_s = limits(group)
        members, leaves = _fill(waiting, indices, max_batch)
        age_s = now_s - waiting[indices[0]].arrived_s
        if leaves >= enough or len(members) < len(indices) or age_s >= deadline_s:
            ready.append(members)
        else:
            wait_s = min(wait_s, deadline_s - age_s)
    if not ready:
        return Plan((), wait_s)
    oldest = min(ready, key=lambda members: waiting[members[0]].arrived_s)
    return Plan(tuple(oldest), 0.0)


def _fill(waiting: Sequence[Waiting], indices: Sequence[int], max_batch: int) -> tuple[list[int], int]:
    """The oldest requests of a group that fit together, at least one, and their leaves."""
    members = [indices[0]]
    leaves = waiting[indices[0]].count
    for index in indices[1:]:
        if leaves + waiting[index].count > max_batch:
            break
        members.append(index)
        leaves += waiting[index].count
    return members, leaves


def buckets(max_batch: int, *, per_octave: int, smallest: int = 1) -> tuple[int, ...]:
    """Batch sizes that are padded to, ascending from `smallest` to `max_batch`; `per_octave` of them between powers of two."""
    sizes = {max_batch}
    octave = 1
    while octave < max_batch:
        sizes.update(octave + octave * step // per_octave for step in range(per_octave))
        octave *= 2
    return tuple(sorted(size for size in sizes if min(smallest, max_batch) <= size <= max_batch))


def bucket_of(count: int, sizes: Sequence[int]) -> int:
    """The smallest bucket that holds `count` leaves; ValueError when none does."""
    index = bisect_left(sizes, count)
    if index == len(sizes):
        raise ValueError(f"{count} leaves exceed the largest bucket of {sizes[-1]}")
    return sizes[index]
