"""Drills as data: the shipped scenarios, what is refused, and when a drill has passed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from azq.errors import ConfigError, NotFound
from azq.parts.lab.drill import Chaos, Intent, Outcome, Scenario, as_table, choose, hosts, load_all, rehearse
from azq.parts.lab.drill.deadly_games import ARMED
from azq.parts.lab.drill.hosts import no_disk
from azq.parts.lab.drill.outcome import Discrepancy, Disk, Rehearsal, Throughput, Work
from azq.parts.lab.drill.rehearse import by_system, odd_game
from azq.parts.lab.drill.scenarios import BROKERS, DEEDS, DISK, FAULTS, FSYNC, HOSTS, PAGE, PROCESSES, SECOND_BROKER, Harm, parse
from azq.parts.lab.drill.system import Evidence, Log, Tally
from azq.replay import framing
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

KILL = Scenario("learner-kill", "kill -9 of the learner", "learner", "kill", 10.0, 40.0)


def test_every_fault_is_rehearsed_and_every_process_and_broker_is_killed_and_hung() -> None:
    found = {(scenario.role, scenario.fault) for scenario in load_all()}
    assert {(role, fault) for role in (*PROCESSES, *BROKERS) for fault in ("kill", "stop")} <= found
    assert {fault for _, fault in found} == set(FAULTS) == {*DEEDS, "cut"}
    assert {scenario.fsync for scenario in load_all() if scenario.fault == "kill"} == {"", *FSYNC}


def test_every_drill_has_its_section_in_the_documentation() -> None:
    page = Path(__file__).parents[5] / "docs" / "6-failure-drills.md"
    sections = [line.removeprefix("### ") for line in page.read_text("utf-8").splitlines() if line.startswith("### ")]
    assert sections == sorted(scenario.name for scenario in load_all())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('summary = "x"\nrole = "learner"\nfault = "kill"\n', "within_s"),
        ('summary = "x"\nrole = "learner"\nfault = "poison"\nwithin_s = 1.0\n', "no fault 'poison' befalls 'learner'"),
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


def test_drills_with_settings_of_their_own_and_hosts_have_systems_of_their_own() -> None:
    second = next(one for one in load_all() if one.role == SECOND_BROKER)
    cut = next(one for one in load_all() if one.role == HOSTS)
    assert by_system([second, cut, KILL]) == ([[KILL], [second]], [cut])
    assert by_system([cut]) == ([], [cut])


def test_chaos_of_hosts_alone_is_refused() -> None:
    cut = [one for one in load_all() if one.role == HOSTS]
    with pytest.raises(ConfigError, match="take no part in chaos"):
        rehearse(cut, Intent(chaos=Chaos(1.0, 0.0)), print)


@pytest.mark.parametrize(("role", "lacking"), [(PAGE, "no_browser"), (DISK, "no_disk")])
def test_drills_whose_place_cannot_be_made_are_left_out_unless_nothing_else_was_asked_for(
    role: str, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = next(one for one in load_all() if one.role == role)
    begun: list[Scenario] = []
    told: list[str] = []

    def begin(group: list[Scenario], plan: Intent, tell: object) -> Rehearsal:
        begun.extend(group)
        return Rehearsal([])

    monkeypatch.setattr(sys.modules[by_system.__module__], "_rehearse", begin)
    monkeypatch.setattr(sys.modules[by_system.__module__], lacking, lambda: "there is none")
    rehearse([KILL, page], Intent(), told.append)
    assert (begun, told) == ([KILL], [f"{page.name}: left out: there is none"])
    rehearse([page], Intent(), told.append)
    assert begun == [KILL, page]


@pytest.mark.skipif(bool(no_disk()), reason="nothing can be mounted")
def test_a_small_disk_takes_no_more_once_it_is_filled_and_its_files_stay(tmp_path: Path) -> None:
    script = f"""
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("hosts", {hosts.__file__!r})  # azq.parts.lab.drill as a whole takes seconds
import sys
sys.modules[spec.name] = made = module_from_spec(spec)
spec.loader.exec_module(made)
folder = Path({str(tmp_path)!r}) / "disk"
folder.mkdir()
with made.small_disk(folder, "1m"):
    (folder / "kept").write_bytes(bytes(8192))
    made.fill(folder)
    try:
        (folder / "more").write_bytes(bytes(8192))
    except OSError as error:
        print(error.strerror)
    (folder / made.FILLER).unlink()
    (folder / "later").write_bytes(bytes(8192))
print(sorted((path.name, path.stat().st_size) for path in folder.iterdir()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "No space left on device\n[('kept', 8192), ('later', 8192), ('more', 0)]\n"
    assert (tmp_path / "disk" / "kept").stat().st_size == 8192, "also for who did not see the disk"


def test_drills_are_chosen_by_name() -> None:
    assert choose([KILL], "learner-kill") == choose([KILL], "all") == [KILL]
    with pytest.raises(NotFound, match=r"no drill 'fire'; there are: learner-kill, all"):
        choose([KILL], "fire")


@pytest.mark.parametrize(
    ("changed", "passed"),
    [
        ({}, True),
        ({"recovery_s": [3.0, 12.0, 11.0]}, False),
        ({"recovery_s": []}, False),
        ({"games_lost": 1}, False),
        ({"duplicates_inserted": 1}, False),
        ({"balanced": False}, False),
        ({"compared": 0}, False),
        ({"games_unexpected": 1}, False),
        ({"games_abandoned": 1}, False),
        ({"failed": "learner did not come back"}, False),
        ({"search_lost_s": [0.2, 1.1]}, True),
        ({"search_lost_s": [0.2, 1.9]}, False),
        ({"pause_s": [3.0, 30.0]}, True),
        ({"pause_s": [3.0, 50.0]}, False),
    ],
)
def test_a_drill_passes_when_nothing_is_lost_and_the_median_is_in_time(changed: dict[str, object], passed: bool) -> None:
    outcome = Outcome(KILL, journal_s=1.0, **{"recovery_s": [3.0, 12.0, 9.0], "compared": 3, **changed})  # type: ignore[arg-type]
    assert outcome.passed() is passed
    assert ("NOT PASSED" in as_table([outcome])) is not passed
    assert outcome.values()["passed"] is passed


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"recovery_s": [25.0]}, ""),
        ({"recovery_s": [31.0]}, "back later"),
        ({"pause_s": [119.0]}, ""),
        ({"pause_s": [121.0]}, "no game learned from"),
        ({"search_lost_s": [3.7]}, ""),
        ({"search_lost_s": [3.8]}, "search lost"),
    ],
)
def test_patience_moves_the_bounds_on_time_and_keeps_them(changed: dict[str, object], problem: str) -> None:
    outcome = Outcome(KILL, journal_s=1.0, patience=3.0, **{"recovery_s": [3.0], "compared": 1, **changed})  # type: ignore[arg-type]
    assert problem in outcome.problem()
    assert outcome.passed() is (not problem)


def test_a_drill_that_kills_self_play_has_to_measure_what_search_was_lost() -> None:
    killed = Scenario("selfplay-kill", "kill -9 in mid-slice", "selfplay", "kill", 5.0, 10.0)
    assert Outcome(killed, journal_s=1.0, recovery_s=[1.0], compared=1).problem() == "search lost was not measured"
    assert Outcome(killed, journal_s=1.0, recovery_s=[1.0], compared=1, search_lost_s=[0.5]).passed()


def test_what_a_comparison_found_is_in_the_verdict() -> None:
    found = Discrepancy(
        frozenset({4}), frozenset({(2, 1), (2, 2)}), frozenset({9}), frozenset({(5, "killed its worker 3 times"), (6, "?")})
    )
    outcome = Outcome(KILL, recovery_s=[1.0])
    outcome.note(found)
    values = outcome.values()
    assert (values["games_lost"], values["duplicates_inserted"], values["games_unexpected"], values["games_abandoned"]) == (1, 2, 1, 2)
    assert (values["compared"], values["passed"]) == (1, False)
    allowed = Outcome(replace(KILL, abandoned="killed its worker"), recovery_s=[1.0])
    allowed.note(Discrepancy(abandoned=found.abandoned))
    assert allowed.problem() == "1 games abandoned"


def test_the_table_says_what_was_hurt_and_when_each_role_served_again() -> None:
    outcome = Outcome(
        KILL, compared=1, recovery_s=[3.0], serving_s={"learner": [2.0, 4.0], "daemon": [0.5]}, search_lost_s=[0.4], journal_s=1.0
    )
    line = as_table([outcome]).splitlines()[1]
    assert "learner-kill" in line
    assert line.endswith("daemon 0.5, learner 3.0")
    values = outcome.values()
    assert (values["role"], values["fault"], values["search_lost_s"]) == ("learner", "kill", 0.4)
    assert values["serving_s"] == {"daemon": 0.5, "learner": 3.0}


def test_a_log_is_read_from_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "learner.log"
    path.write_text("disk_refuses segments in x\n")
    log = Log(path)
    assert not log.says("disk_refuses")
    with path.open("a") as file:
        file.write("disk_refuses checkpoint\nsegments in y\n")
    assert log.says("disk_refuses")
    assert not log.says("disk_refuses", "segments in")


def test_a_harm_is_lifted_once() -> None:
    lifted: list[int] = []
    harm = Harm(lambda: True, lift=lambda: lifted.append(1))
    harm.end()
    harm.end()
    assert lifted == [1]


def test_throughput_in_chaos_is_a_share_of_the_undisturbed_one() -> None:
    found = Throughput.of(Work(100, 5_000, 10.0), Work(200, 10_000, 20.0), Work(360, 19_000, 40.0))
    assert found.values()["throughput_share"] == {"games": 0.8, "simulations": 0.9}
    assert "80.0%" in found.as_line()


def _frame(uid: int, simulations: list[int]) -> bytes:
    record = GameRecord(uid, simulations=np.array(simulations, np.uint16).tobytes(), weight_versions=np.array([7], "<u4").tobytes())
    return encode(SampleEvent(record, (1.0, -1.0), "host:7", 1000 + uid))


def test_the_evidence_reads_on_and_finds_what_is_there_twice(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path, "tic_tac_toe")
    assert evidence.read() == Tally()
    first, second, third = (framing.records(_frame(uid, [16, 16])) for uid in (1, 2, 2))
    path = tmp_path / "000001.seg"
    head = framing.header("tic_tac_toe")
    path.write_bytes(head[:5])
    assert evidence.read() == Tally()
    path.write_bytes(head + first + second[:9])
    assert evidence.read() == Tally(games=1, twice=0, simulations=32)
    path.write_bytes(head + first + second + third)
    assert evidence.read() == Tally(games=3, twice=1, simulations=96)
    assert evidence.disk() == Disk({1, 2}, {2: 1})
    assert evidence.versions() == {7}
    assert evidence.finished_ms("host:7") == 1002
    assert evidence.finished_ms("host:8") == 0
    path.write_bytes(head + first)  # a learner cut it
    assert evidence.read() == Tally(games=1, twice=0, simulations=32)


def test_a_skewed_process_sees_its_clock_jump() -> None:
    script = """
from azq.parts.lab.drill.skewed_clock import skew
import time
before = time.time()
skew(0.0, 3600.0)
print(time.time() - before, time.time_ns() / 1e9 - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [float(word) for word in done.stdout.split()] == pytest.approx([3600.0, 3600.0], abs=60.0)


def play(path: str, deal: int, role: str) -> str:
    """A game of `Deadly` after this deal, in a process of its own: how it ended."""
    script = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("odd", {path!r})
odd = importlib.util.module_from_spec(spec)
spec.loader.exec_module(odd)
game = odd.Deadly()
game.apply_action({deal})
while not game.is_terminal():
    game = game.clone()
    game.apply_action(game.legal_actions()[-1])
print(game, game.returns(), sum(game.observation_tensor(0)))
"""
    done = subprocess.run([sys.executable, "-c", script, role], capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"exit code {done.returncode}"


def test_once_armed_one_game_kills_whoever_plays_it_and_no_other_does(tmp_path: Path) -> None:
    path = odd_game(tmp_path, "Deadly").rpartition(":")[0]
    assert play(path, 1, "worker") == "deal 1, said [5, 5, 5, 5, 5, 5, 5, 5] [-1.0, 1.0] 9"
    (Path(path).parent / ARMED).touch()
    assert play(path, 2, "learner").startswith("deal 2")
    assert [play(path, deal, "worker")[:6] for deal in (3, 4, 3)] == ["exit c", "deal 4", "exit c"]
    assert play(path, 3, "learner").startswith("deal 3")


def test_a_game_of_a_drill_lies_in_the_systems_own_folder(tmp_path: Path) -> None:
    path, _, name = odd_game(tmp_path, "Sound").rpartition(":")
    assert Path(path).is_relative_to(tmp_path)
    assert f"class {name}" in Path(path).read_text()
