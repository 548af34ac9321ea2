"""What a game does to the process that checks it is a finding, and the command answers as ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from azq.cli.app import app
from azq.errors import ConfigError
from azq.games.apart import check_apart

MISBEHAVING = Path(__file__).parents[2] / "games" / "misbehaving.py"


def test_a_process_that_ends_is_a_finding() -> None:
    (finding,) = check_apart(f"{MISBEHAVING}:ExitsHard", {}, 2).findings
    assert finding.rule == "process"
    assert finding.evidence.startswith("its process ended with exit code 0 in apply_action (misbehaving.py, line ")


def test_what_loading_raises_is_raised_here() -> None:
    with pytest.raises(ConfigError, match="has no parameter nosuch; it takes none"):
        check_apart(f"{MISBEHAVING}:Sound", {"nosuch": 1}, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "patience_s", "told"),
    [
        ("Faults", 60.0, "process: its process died of SIGSEGV in apply_action (misbehaving.py, line "),
        ("Loops", 2.0, "time: no answer within 2 s in is_terminal (misbehaving.py, line "),
        ("DrawnAtImport", 60.0, "process: another process replays the recorded actions to other positions or results"),
        ("OrderOfSets", 60.0, "process: another process replays the recorded actions to other positions or results"),
        ("Asks", 60.0, "contract: game "),
    ],
)
def test_each_fault_is_named_with_its_place(name: str, patience_s: float, told: str) -> None:
    (finding,) = check_apart(f"{MISBEHAVING}:{name}", {}, 2, patience_s=patience_s).findings
    assert f"{finding.rule}: {finding.evidence}".startswith(told)


@pytest.mark.slow
def test_what_a_game_prints_and_leaves_behind_is_noted_apart_from_the_answer() -> None:
    ended = CliRunner().invoke(app, ["games", "check", f"{MISBEHAVING}:Noisy", "--games", "2", "--json"])
    report = json.loads(ended.stdout)
    assert (ended.exit_code, report["sound"]) == (0, True)
    words = ("first 'move ", "deprecated rule", "thread clock", "Noisy.log changes", "random or numpy.random")
    assert [word for word in words if not any(word in note for note in report["notes"])] == []
