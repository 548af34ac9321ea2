"""Worker children keep to cores of their own."""

from __future__ import annotations

import os
import threading
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.actor.slice import PATIENCE_S, Slice
from azq.config import RunSections
from azq.ledger.types import Lease
from azq.wire.kinds import Kind
from azq.wire.messages import Job
from workers import selfplay
from workers.selfplay import cores_of, pinned


@given(st.sets(st.integers(0, 255), min_size=1), st.integers(1, 8), st.integers(1, 16))
def test_children_that_fit_share_no_core_and_use_only_what_is_allowed(allowed: set[int], threads: int, children: int) -> None:
    fitting = [cores_of(slot, threads, allowed) for slot in range(children) if (slot + 1) * threads <= len(allowed)]
    assert all(len(cores) == threads and cores <= allowed for cores in fitting)
    assert len(frozenset().union(*fitting)) == threads * len(fitting)
    assert cores_of(len(allowed), threads, allowed) == allowed  # no cores are left for this one


def test_neighbours_go_together() -> None:
    assert cores_of(1, 4, range(16, 32)) == {20, 21, 22, 23}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone cannot be chosen")
def test_threads_started_meanwhile_inherit_the_cores_and_the_caller_gets_its_own_back() -> None:
    before, seen = os.sched_getaffinity(0), []
    with pinned(1, 1) as cores:
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join(10.0)
        assert os.sched_getaffinity(0) == cores == {sorted(before)[1]}
    assert seen == [cores]
    assert os.sched_getaffinity(0) == before


def test_too_few_cores_leave_the_child_free() -> None:
    before = os.sched_getaffinity(0)
    with pinned(len(before), 1) as cores:
        assert cores == before == os.sched_getaffinity(0)


@pytest.mark.parametrize(("published", "stall_s", "waits_s"), [([], 1.0, 1.0), (["event"], 1.0, PATIENCE_S), ([], 0.0, PATIENCE_S)])
def test_a_run_without_weights_gives_its_slot_back_as_soon_as_one_that_its_limiter_holds(
    published: list[str], stall_s: float, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, asked = MagicMock(), list[Slice]()
    context.sections_now.return_value = RunSections()
    monkeypatch.setattr(selfplay, "read_weights", lambda bus, run: published)
    monkeypatch.setattr(selfplay, "SelfPlay", lambda ledger, part, *_, **__: asked.append(part) or MagicMock())
    selfplay._play(context, Lease(Job("r:1", "r", Kind.SELFPLAY, "cpu", stall_s=stall_s), 1, "w", 10.0))
    assert [part.patience_s for part in asked] == [waits_s]
