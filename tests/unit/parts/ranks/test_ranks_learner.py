"""The other ranks of a learner as its children: started, started again, ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from azq.errors import ExitCode
from azq.parts.ranks.learner import BACKOFF, Launcher, environment
from azq.parts.ranks.rules import RankPlace
from azq.process.supervisor import STEADY_AFTER_S, ChildSpec


class FakeProcess:
    """Ends when it is told to; one that is stubborn only when it is killed."""

    pid = 7

    def __init__(self, *, stubborn: bool = False) -> None:
        self.code: int | None = None
        self.stubborn = stubborn

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, sig: int) -> None:
        if sig == signal.SIGKILL:
            self.code = -9
        elif not self.stubborn:
            self.code = 0


class Host:
    """A launcher with a clock and processes of its own."""

    def __init__(self, place: RankPlace) -> None:
        self.now = 0.0
        self.started: list[tuple[int, FakeProcess]] = []
        self.launcher = Launcher("first", place, Path("folder"), self.start, clock=lambda: self.now)

    def start(self, spec: ChildSpec, env: Mapping[str, str]) -> FakeProcess:
        assert (spec.command[-4:], env["RANK"]) == (["--run", "first", "--folder", "folder"], spec.name)
        self.started.append((int(spec.name), FakeProcess()))
        return self.started[-1][1]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def ranks(self) -> list[int]:
        return [rank for rank, _ in self.started]


def test_every_rank_but_the_first_is_started_once():
    host = Host(RankPlace(ranks=3))
    host.launcher.turn()
    host.launcher.turn()
    assert host.ranks() == [1, 2]


def test_ranks_that_something_else_launches_are_left_alone():
    host = Host(RankPlace(ranks=3, launched=True))
    host.launcher.turn()
    assert host.ranks() == []


def test_a_rank_that_dies_comes_back_after_a_pause_that_grows_and_shrinks_after_a_steady_life():
    host = Host(RankPlace(ranks=2))
    host.launcher.turn()
    pauses = []
    for lived_s in (1, 1, 1, STEADY_AFTER_S):
        host.now += lived_s
        host.started[-1][1].code = -9
        count, begun = len(host.started), host.now
        while len(host.started) == count:
            host.launcher.turn()
            host.now += 0.25
        pauses.append(host.now - 0.25 - begun)
    assert pauses == [BACKOFF.first_s, 2 * BACKOFF.first_s, 4 * BACKOFF.first_s, BACKOFF.first_s]


def test_a_rank_whose_settings_are_wrong_is_not_started_again():
    host = Host(RankPlace(ranks=2))
    host.launcher.turn()
    host.started[0][1].code = int(ExitCode.CONFIG)
    for _ in range(20):
        host.now += 10
        host.launcher.turn()
    assert host.ranks() == [1]


def test_stopping_ends_all_and_kills_who_will_not():
    host = Host(RankPlace(ranks=3))
    host.launcher.turn()
    host.started[1][1].stubborn = True
    host.launcher.stop(host.wait)
    assert [process.code for _, process in host.started] == [0, -9]


def test_a_rank_inherits_all_but_the_learners_signs_of_life():
    environ = {"AZQ_HOME": "/h", "NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "AZQ_ALIVE_FILE": "/a"}
    assert environment(environ, 2) == {"AZQ_HOME": "/h", "RANK": "2", "LOCAL_RANK": "2"}
