"""Drills as data: the shipped scenarios, what is refused, and when a drill has passed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from azq.errors import ConfigError, NotFound
from azq.parts.lab.drill import Scenario, choose, load_all
from azq.parts.lab.drill.outcome import Disk
from azq.parts.lab.drill.rehearse import by_system
from azq.parts.lab.drill.scenarios import BROKERS, FAULTS, FSYNC, INJECTORS, PROCESSES, SECOND_BROKER, InjectedFault, parse
from azq.parts.lab.drill.system import Log, LogReader
from azq.replay import framing
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

KILL = Scenario("learner-kill", "kill -9 of the learner", "learner", "kill", 10.0, 40.0)


def test_every_fault_is_rehearsed_and_every_process_and_broker_is_killed_and_hung() -> None:
    found = {(scenario.role, scenario.fault) for scenario in load_all()}
    assert {(role, fault) for role in (*PROCESSES, *BROKERS) for fault in ("kill", "stop")} <= found
    assert {fault for _, fault in found} == set(FAULTS) == set(INJECTORS)
    assert {scenario.fsync for scenario in load_all() if scenario.fault == "kill"} == {"", *FSYNC}


def test_every_drill_has_its_section_in_the_documentation() -> None:
    page = Path(__file__).parents[5] / "docs" / "6-failure-drills.md"
    sections = [line.removeprefix("### ") for line in page.read_text("utf-8").splitlines() if line.startswith("### ")]
    assert sections == sorted(scenario.name for scenario in load_all())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('summary = "x"\nrole = "learner"\nfault = "kill"\n', "within_s"),
        ('summary = "x"\nrole = "learner"\nfault = "poison"\nwithin_s = 1.0\n', "no fault 'poison' hits 'learner'"),
        ("summary = ", "needs summary, role, fault"),
        ('summary = "x"\nrole = "learner"\nfault = "kill"\nwithin_s = 1.0\nhow = "so"\n', "unknown key 'how'"),
        ('summary = "x"\nrole = "learner"\nfault = "kill"\nwithin_s = 1.0\nfsync = "no"\n', "fsync 'no' is none of"),
        ('summary = "x"\nrole = "broker-control"\nfault = "kill"\nwithin_s = 1.0\nfsync = "daily"\n', "fsync 'daily' is none of"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as refused:
        parse(path)
    assert "odd.toml" in str(refused.value)


def test_drills_with_settings_of_their_own_have_systems_of_their_own() -> None:
    second = next(scenario for scenario in load_all() if scenario.role == SECOND_BROKER)
    assert by_system([second, KILL]) == [[KILL], [second]]


def test_drills_are_chosen_by_name() -> None:
    assert choose([KILL], "learner-kill") == choose([KILL], "all") == [KILL]
    with pytest.raises(NotFound, match=r"no drill 'fire'; there are: learner-kill, all"):
        choose([KILL], "fire")


def test_a_log_is_read_from_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "learner.log"
    path.write_text("disk_refuses segments in x\n")
    log = Log(path)
    assert not log.says("disk_refuses")
    with path.open("a") as file:
        file.write("disk_refuses checkpoint\nsegments in y\n")
    assert log.says("disk_refuses")
    assert not log.says("disk_refuses", "segments in")


def test_a_fault_is_lifted_once() -> None:
    lifted: list[int] = []
    injected = InjectedFault(lambda: True, lift=lambda: lifted.append(1))
    injected.end()
    injected.end()
    assert lifted == [1]


def _frame(uid: int, simulations: list[int]) -> bytes:
    record = GameRecord(uid, simulations=np.array(simulations, np.uint16).tobytes(), weight_versions=np.array([7], "<u4").tobytes())
    return encode(SampleEvent(record, (1.0, -1.0), "host:7", 1000 + uid))


def test_the_log_is_read_on_and_finds_what_is_there_twice(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, "tic_tac_toe")
    assert reader.read() == 0
    first, second, third = (framing.records(_frame(uid, [16, 16])) for uid in (1, 2, 2))
    path = tmp_path / "000001.seg"
    head = framing.header("tic_tac_toe")
    path.write_bytes(head[:5])
    assert reader.read() == 0
    path.write_bytes(head + first + second[:9])
    assert reader.read() == 1
    path.write_bytes(head + first + second + third)
    assert reader.read() == 3
    assert reader.disk() == Disk({1, 2}, {2: 1})
    assert reader.versions() == {7}
    path.write_bytes(head + first)  # a learner cut it
    assert reader.read() == 1
