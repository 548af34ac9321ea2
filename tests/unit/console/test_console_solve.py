"""`azq solve` from end to end: the file that `azq grade` finds, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from azq.arena import positions
from azq.arena import solve as solving
from azq.cli.app import app
from azq.console.solve import SolveRequest, solve
from azq.errors import ConfigError, NotFound

NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"


def asked(home: Path, **changes: object) -> SolveRequest:
    return SolveRequest(NIM, {"heap": 9}, home, **changes)  # type: ignore[arg-type]


def test_positions_are_there_for_the_game_with_these_parameters(tmp_path: Path) -> None:
    told = solve(asked(tmp_path), print)
    assert (told["value"], told["best"]) == (1.0, [0])
    found = positions.load(NIM, {"heap": 9}, tmp_path)
    assert len(found) == told["graded"] == told["decisive"]
    assert {one.group for one in found} == {"early", "middle", "late"}
    assert positions.available(NIM, {"heap": 9}, tmp_path)
    assert not positions.available(NIM, {"heap": 10}, tmp_path)
    with pytest.raises(NotFound, match="azq solve"):
        positions.load(NIM, {}, tmp_path)


def test_the_command_line_solves_and_grades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    solved = CliRunner().invoke(app, ["solve", "tic_tac_toe", "--positions", "30", "--json"])
    assert solved.exit_code == 0, solved.output
    told = json.loads(solved.stdout)
    assert (told["positions"], told["value"], told["decisive"], told["graded"]) == (5478, 0.0, 3191, 30)
    assert told["best"] == list(range(9))
    graded = CliRunner().invoke(app, ["grade", "--game", "tic_tac_toe", "--player", "uct:2000", "--json"])
    assert json.loads(graded.stdout)["positions"] == 30
    assert json.loads(graded.stdout)["error_share"] <= 0.1


def test_one_player_loses_by_each_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    coins = str(Path(NIM).parent / "coins.py:Coins")
    solved = CliRunner().invoke(app, ["solve", coins])
    assert solved.exit_code == 0, solved.output
    assert "at best 66 (best 1); 923 positions, a choice matters in 245" in solved.stdout
    graded = json.loads(CliRunner().invoke(app, ["grade", "--game", coins, "--player", "random", "--json"]).stdout)
    assert 0.3 < graded["error_share"] < 0.7, "either of two moves is wrong"


def test_endgames_alone(tmp_path: Path) -> None:
    told = solve(asked(tmp_path, endgames=4, positions=3, out=tmp_path / "deep" / "ends.jsonl"), print)
    assert told["graded"] == 3
    assert len(positions.read(tmp_path / "deep" / "ends.jsonl")) == 3


def test_an_interrupt_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "nim.jsonl"
    out.write_text("before")

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(solving.Descent, "solved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve(asked(tmp_path, out=out), print)
    monkeypatch.undo()
    monkeypatch.setattr("azq.files.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve(asked(tmp_path, out=out), print)
    assert out.read_text() == "before"
    with pytest.raises(ConfigError, match="more than 5 positions"):
        solve(asked(tmp_path, out=out, max_states=5), print)
    assert out.read_text() == "before"
