"""The newest lines of log of a process and of those it forked."""

from __future__ import annotations

import os

from waiting import until

from azq import logs
from azq.logs import Tail


def test_only_the_newest_lines_are_kept_oldest_first() -> None:
    tail = Tail()
    for number in range(tail.KEPT + 5):
        tail.add(f"line {number}")
    assert tail.newest(2) == [f"line {tail.KEPT + 3}", f"line {tail.KEPT + 4}"]
    assert tail.newest(10 * tail.KEPT)[0] == "line 5"


def test_a_line_with_a_traceback_counts_as_its_lines() -> None:
    tail = Tail()
    tail.add("failed\n  File one\nError")
    assert tail.newest(2) == ["  File one", "Error"]


def test_no_value_writes_to_a_terminal_what_it_obeys() -> None:
    assert logs._mask(None, "", {"event": "unreadable", "place": "azq:beat:\x1b[31mx\u202e", "at": 1, "why": "héllo\n"}) == {
        "event": "unreadable",
        "place": "azq:beat:\\x1b[31mx\\u202e",
        "at": 1,
        "why": "héllo\n",
    }


def test_what_a_forked_process_says_is_there_and_a_flood_of_it_waits_for_nobody() -> None:
    tail = Tail()
    tail.add("owner")
    child = os.fork()
    if not child:
        for number in range(100_000):
            tail.add(f"child {number} " + "x" * tail.LONGEST)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    until(lambda: tail.newest(1)[0].startswith("child"), "the child's lines")
    assert all(len(line) < tail.LONGEST for line in tail.newest(tail.KEPT))
    assert tail.newest(tail.KEPT)[:2][0] == "owner"
