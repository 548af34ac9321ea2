"""Drills of what takes longer than any watch waits: what is asked meanwhile, and who is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from waiting import PATIENCE_S, until

from azq.errors import StateConflict
from azq.parts.lab.drill.faults.pauses import ReadyWatch, readiness, tree
from azq.process.kin import Kin


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
    assert asked.wait(PATIENCE_S)
    if passes:
        watch.end()
    else:
        with pytest.raises(StateConflict, match="/readyz"):
            watch.end()


def test_a_daemon_that_is_not_there_answers_nothing() -> None:
    assert readiness("http://127.0.0.1:1") is None


def test_a_tree_is_an_azq_up_and_all_below_it_and_may_be_stopped() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '600']); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as parent:
        kin = Kin.of(parent.pid)
        until(lambda: len(tree(kin)) == 2)
        go_on = kin.signalled(signal.SIGSTOP, *tree(kin))
        until(lambda: [victim.process.status() for victim in tree(kin)] == ["stopped", "stopped"])
        go_on()
        until(lambda: "stopped" not in [victim.process.status() for victim in tree(kin)])
        for victim in reversed(tree(kin)):
            kin.send(signal.SIGKILL, victim)
