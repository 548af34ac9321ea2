"""A worker's child that searches on cores of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until
from worker_doubles import Fleet


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(broker, tmp_path)
    yield fleet
    fleet.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone cannot be chosen")
def test_a_pinned_child_plays_on_its_core_and_leaves_it_after_the_slice(fleet: Fleet) -> None:
    everything = os.sched_getaffinity(0)
    fleet.create_run(pin_threads=True)
    fleet.start()
    fleet.send(slice_s=2.0)
    child = fleet.playing()
    until(lambda: os.sched_getaffinity(child) == {min(everything)}, "child on its core")
    until(lambda: os.sched_getaffinity(child) == everything, "child on every core")
    assert fleet.finished() > 0
    assert fleet.balanced()
