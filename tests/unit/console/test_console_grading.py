"""`azq grade`: tables and values of files of positions, and a network's own judgement beside its moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from arena_doubles import WalkGame

from azq import games
from azq.arena.grade import Grade
from azq.arena.player import Ground
from azq.arena.players import NetworkPlayer
from azq.config import SearchConfig, load
from azq.console import grading, play
from azq.errors import NotFound
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
