"""Grading players, solving small games, and what the commands answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from arena_doubles import WalkGame
from typer.testing import CliRunner

from azq import games
from azq.arena import solve as solving
from azq.arena.grade import Grade
from azq.arena.player import Ground
from azq.arena.players import NetworkPlayer
from azq.cli.app import app
from azq.config import SearchConfig, load
from azq.console import grading, play
from azq.console.grading import SolveRequest, solve
from azq.errors import ConfigError, NotFound
from azq.ratings import positions
from azq.search.evaluator import UniformEvaluator

WALK: Any = WalkGame()


def request(game: str) -> play.Seating:
    return play.Seating(game, None, "latest", 16, slots=16)


def test_a_file_is_graded_and_told_as_table_and_values(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"actions": [0, 4, 1, 8], "moves": {"2": 1, "3": -1, "5": -1, "6": -1, "7": -1}, "phase": "end"}\n' * 3)
    result = grading.grade_player(load(), request("tic_tac_toe"), "uct:500", file)
    assert (result["positions"], result["errors"], result["mean_loss"], result["unlisted"]) == (3, 0, 0.0, 0)
    assert result["by_class"]["end"]["positions"] == 3
    assert "0.0%" in grading.grade_text(result)
    assert grading.grade_player(load(), request("connect_four"), "random", None)["positions"] == 600
    with pytest.raises(NotFound, match="othello"):
        grading.grade_player(load(), request("othello"), "random", None)


def test_result_classes_are_told_only_where_results_are_certain() -> None:
    found = Grade(1, 4, {"": (1, 4)}, 0.5, {"": 0.5}, 2)
    assert "errors" not in grading.grade_figures(WALK, "x", 1, found)
    text = grading.grade_text(grading.grade_figures(WALK, "x", 1, found))
    assert "lost classes" not in text
    assert "2 moves are not graded" in text


def test_a_networks_own_judgement_stands_beside_its_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.load("tic_tac_toe")

    @contextmanager
    def seated(*_: object) -> Iterator[tuple[games.Game, list[NetworkPlayer]]]:
        ground = Ground(game, UniformEvaluator(9), SearchConfig(), 200, latest=3, slots=4)
        yield game, [NetworkPlayer((3,), ground)]

    monkeypatch.setattr(grading, "seated", seated)
    file = tmp_path / "mine.jsonl"
    file.write_text('{"actions": [0, 4, 1, 8], "moves": {"2": 1, "3": -1, "5": -1, "6": -1, "7": -1}}\n' * 2)
    result = grading.grade_player(load(), request("tic_tac_toe"), "latest", file)
    assert (result["errors"], result["positions"]) == (0, 2)
    regret = result["regret"]
    assert regret["policy"] == {"mean": pytest.approx(2 * 4 / 5), "error": 0.0}  # of five moves four lose 2
    assert regret["search"]["mean"] < 0.1
    assert regret["value_error"]["mean"] < 0.1
    assert sum(row["positions"] for row in regret["reliability"]) == 2
    assert "1.6000 +-0.0000 by the network's shares" in grading.grade_text(result)


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
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="more than 5 positions"):
        solve(asked(tmp_path, out=out, max_states=5), print)
    assert out.read_text() == "before"
