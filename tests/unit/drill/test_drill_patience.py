"""Drills of what takes longer than any watch waits: what is asked meanwhile, and who is stopped."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from azq.drill.faults.patience import ReadyWatch, readiness, tree
from azq.errors import StateConflict


@pytest.mark.parametrize(
    ("answers", "passes"),
    [([200, 503, 200], True), ([503], True), ([200], False), ([200, 503, None], False), ([503, 500], False)],
)
def test_a_daemon_has_to_answer_all_the_while_and_to_say_once_that_it_is_not_ready(answers: list[int | None], passes: bool) -> None:
    left, asked = list(answers), threading.Event()

    def ask(_url: str) -> int | None:
        if len(left) == 1:
            asked.set()
        return left.pop(0) if len(left) > 1 else left[0]

    watch = ReadyWatch("http://127.0.0.1:1", ask, every_s=0.0)
    assert asked.wait(60.0)
    if passes:
        watch.end()
    else:
        with pytest.raises(StateConflict, match="/readyz"):
            watch.end()


def test_a_daemon_that_is_not_there_answers_nothing() -> None:
    assert readiness("http://127.0.0.1:1") is None


def test_a_tree_is_all_below_a_process_parents_first(tmp_path: Path) -> None:
    for pid, below in {"1": "2 3", "2": "4", "3": "", "4": ""}.items():
        (tmp_path / pid / "task" / pid).mkdir(parents=True)
        (tmp_path / pid / "task" / pid / "children").write_text(below)
    assert tree(1, tmp_path) == [1, 2, 3, 4]
