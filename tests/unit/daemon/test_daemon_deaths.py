"""Deaths that nobody told of: heartbeats that stop, and processes that come in their place."""

from __future__ import annotations

from collections.abc import Sequence

from azq.status.conditions import Died, crash_loops
from azq.wire.machines import ProcessDeath
from azq.wire.messages import Heartbeat
from daemon.decide.actions import ReportCrashLoop
from daemon.decide.deaths import Lives, crash_reports, deaths, lives

LIFE_MS = 8_000.0


class Fleet:
    """Processes that beat every two seconds, and a look at them every second."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.lives: Lives = {}
        self.told: list[Died] = []
        self.found: list[ProcessDeath] = []
        self._beats: dict[str, tuple[Heartbeat, bool]] = {}  # and whether it lives

    def start(self, pid: int, role: str = "learner", host: str = "box", run: str = "first") -> str:
        worker = f"{role}@{host}:{pid}"
        self._beats[worker] = Heartbeat(role, worker, host, pid, "0", 3, self.now_ms, self.now_ms, run=run), True
        return worker

    def kill(self, worker: str) -> None:
        self._beats[worker] = self._beats[worker][0], False

    def leave(self, worker: str) -> None:
        del self._beats[worker]

    def look(self, seconds: int, *, away: bool = False) -> None:
        """So many looks; `away`: none of the daemon's goes through, and no heartbeat."""
        for _ in range(seconds):
            self.now_ms += 1_000
            if away:
                continue
            for worker, (beat, works) in list(self._beats.items()):
                if works and self.now_ms - beat.sent_ms >= 2_000:
                    beat = _sent(beat, self.now_ms)
                    self._beats[worker] = beat, works
                elif self.now_ms - beat.sent_ms > LIFE_MS:
                    del self._beats[worker]
            self._note([beat for beat, _ in self._beats.values()])

    def _note(self, beats: Sequence[Heartbeat]) -> None:
        self.lives, found = deaths(lives(self.lives, beats, self.now_ms, LIFE_MS), self.told)
        self.found += found


def _sent(beat: Heartbeat, at_ms: int) -> Heartbeat:
    return Heartbeat(beat.role, beat.worker, beat.host, beat.pid, "0", 3, beat.started_ms, at_ms, run=beat.run)


def test_who_dies_and_is_started_again_and_again_is_a_crash_loop() -> None:
    fleet = Fleet()
    for pid in range(1, 5):
        worker = fleet.start(pid)
        fleet.look(5)
        fleet.kill(worker)
        fleet.look(1)  # the next one is there before the heartbeat's life is over
    fleet.start(5)
    fleet.look(20)
    assert [(death.name, death.pid, death.run) for death in fleet.found] == [("learner", pid, "first") for pid in range(1, 5)]
    (loop,) = crash_loops([Died(0, death) for death in fleet.found], 0)
    assert crash_reports([loop]) == [ReportCrashLoop("first", "learner@box", str(loop))]
    assert crash_reports([loop])[0] == ReportCrashLoop("first", "learner@box", "in other words: the same condition while more deaths come")


def test_who_takes_leave_or_was_told_of_or_has_nobody_in_his_place_is_none() -> None:
    left, told, alone = Fleet(), Fleet(), Fleet()
    for fleet in (left, told, alone):
        worker = fleet.start(1)
        fleet.look(5)
        (fleet.leave if fleet is left else fleet.kill)(worker)
        fleet.look(1)
    told.told = [Died(0, ProcessDeath("learner", "box", 1, "first", "SIGSEGV", ""))]
    left.start(2)
    told.start(2)
    alone.start(2, host="another")
    alone.start(3, run="second")
    for fleet in (left, told, alone):
        fleet.look(30)
        assert fleet.found == []


def test_a_control_plane_that_was_away_kills_nobody() -> None:
    fleet = Fleet()
    fleet.start(1)
    fleet.look(5)
    fleet.look(60, away=True)
    fleet._note([])  # it is back, and nobody has found his way yet
    fleet.look(5)
    assert fleet.found == []


def test_many_that_die_once_are_no_loop_and_each_line_keeps_its_name() -> None:
    fleet = Fleet()
    first = [fleet.start(pid, "selfplay") for pid in (1, 2, 3)]
    fleet.look(5)
    for worker in first:
        fleet.kill(worker)
    fleet.look(1)
    for pid in (11, 12, 13):
        fleet.start(pid, "selfplay")
    fleet.look(20)
    assert sorted(death.name for death in fleet.found) == ["selfplay", "selfplay-2", "selfplay-3"]
    assert crash_loops([Died(0, death) for death in fleet.found], 0) == ()
    assert sorted(life.name for life in fleet.lives.values()) == ["selfplay", "selfplay-2", "selfplay-3"]


def test_one_more_process_beside_another_is_not_in_its_place() -> None:
    fleet = Fleet()
    worker = fleet.start(1)
    fleet.look(5)
    fleet.start(2)
    fleet.look(5)
    fleet.kill(worker)
    fleet.look(30)
    assert fleet.found == []
