"""The stacks of this process by the names of its threads, and those of children that compute, sleep, are stopped or gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from azq.process.stacks import ForkedStacks, own


def wait_here(told: threading.Event) -> None:
    told.wait()


def test_all_threads_are_told_by_their_names() -> None:
    told = threading.Event()
    thread = threading.Thread(target=wait_here, args=(told,), name="patience")
    thread.start()
    try:
        lines = own()
    finally:
        told.set()
        thread.join()
    assert lines[0].startswith("thread MainThread")
    start = lines.index("thread patience")
    assert any("in wait_here" in line for line in lines[start:])


@pytest.fixture
def child() -> Iterator[tuple[ForkedStacks, int]]:
    stacks = ForkedStacks()
    pid = os.fork()
    while not pid:
        signal.pause()
    yield stacks, pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_child_in_c_code_tells_where_it_is_as_often_as_it_is_asked(child: tuple[ForkedStacks, int]) -> None:
    stacks, pid = child
    for _ in range(2):
        lines = stacks.of([pid])
        assert lines[0] == f"process {pid}"
        assert any("test_process_stacks.py" in line for line in lines)


def test_a_stopped_child_and_one_that_is_gone_are_told(child: tuple[ForkedStacks, int]) -> None:
    stacks, pid = child
    os.kill(pid, signal.SIGSTOP)
    assert stacks.of([pid])[1].startswith("  it wrote nothing")
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    assert stacks.of([gone]) == [f"process {gone}", "  it is gone"]
