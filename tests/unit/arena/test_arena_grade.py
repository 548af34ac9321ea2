"""Grading of whole turns, files of positions, and what is said about bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from arena_doubles import Choosing, WalkGame
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.arena.grade import grade, judge, summarise
from azq.arena.player import RESIGN
from azq.errors import ConfigError
from azq.ratings import positions
from azq.ratings.positions import Position

WALK: Any = WalkGame()


def turn(moves: dict[str, float], **more: Any) -> Position:
    text = json.dumps({"position": "2", "moves": moves, **more})
    return positions.parse(text, "here")[0]


def play(*actions: int) -> Choosing:
    """Plays these actions, the first of them first."""
    rest = iter(actions)
    return Choosing(WALK, lambda _: next(rest))


def test_two_orders_of_the_same_steps_count_the_same() -> None:
    graded = turn({"0 1": 0.25, "1 1": 0.75, "0 0": -0.5})
    assert grade(WALK, play(0, 1), [graded]).mean_loss == 0.5
    assert grade(WALK, play(1, 0), [graded]).mean_loss == 0.5
    assert grade(WALK, play(1, 1), [graded]).mean_loss == 0.0


def test_a_move_that_is_not_listed_is_the_worst_and_said() -> None:
    found = grade(WALK, play(0, 0), [turn({"0 1": 0.25, "1 1": 0.75})])
    assert (found.mean_loss, found.unlisted) == (0.5, 1)


def test_who_resigns_gets_the_worst() -> None:
    assert grade(WALK, play(RESIGN), [turn({"0 1": 0.25, "1 1": 0.75})]).mean_loss == 0.5


def test_positions_are_asked_together_and_each_until_its_turn_is_over() -> None:
    player = Choosing(WALK, lambda _: 1)
    rows = [turn({"1 1": 1.0}), positions.parse('{"actions": [0, 1, 1, 2, 0], "moves": {"1": -1, "0": -1}}', "here")[0]]
    found = grade(WALK, player, rows)
    assert found.positions == 2
    assert found.errors == 0
    assert [len(history) for history in player.asked] == [0, 5, 1]


def test_actions_and_notation_mean_the_same() -> None:
    game = games.load("connect_four")
    graded = positions.load("connect_four")[:5]
    first = Choosing(game, lambda state: state.legal_actions()[0])
    moved = []
    for one in graded:
        state = game.new_initial_state()
        for action in one.actions:
            state.apply_action(action)
        moved.append(Position((), one.moves, one.group, state.notation()))
    assert grade(game, first, graded) == grade(game, first, moved)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("no json", "line 2"),
        ("[]", "line 2"),
        ('{"moves": {"1": 0}}', 'either "actions" or "position"'),
        ('{"actions": [1], "position": "2", "moves": {"1": 0}}', 'either "actions" or "position"'),
        ('{"actions": [1]}', "one move at least"),
        ('{"actions": [1], "moves": {}}', "one move at least"),
        ('{"actions": [1], "moves": {"": 1}}', "without actions"),
        ('{"actions": [1], "moves": {"x": 1}}', "line 2"),
        ('{"actions": [1], "moves": {"1": "good"}}', "number"),
        ('{"actions": [1], "moves": {"1": NaN}}', "number"),
        ('{"actions": [1.5], "moves": {"1": 1}}', "whole numbers"),
        ('{"actions": [true], "moves": {"1": 1}}', "whole numbers"),
        ('{"actions": [-1], "moves": {"1": 1}}', "whole numbers"),
        ('{"actions": [1], "moves": {"1": 1}, "score": 1}', "true or false"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(line: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        positions.parse('{"position": "2", "moves": {"1 1": 1}}\n' + line + "\n", "file.jsonl")
    assert "file.jsonl line 2" in str(caught.value)
    assert positions.FORM in str(caught.value)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"position": "what", "moves": {"1": 1}}', "no position"),
        ('{"position": "2 1 1 0 0 0 0 0 0 0 0 0", "moves": {"1": 1}}', "no player is to move"),
        ('{"position": "", "actions": [2, 1, 1], "moves": {"1": 1}}', "no player is to move"),
        ('{"actions": [2, 9], "moves": {"1": 1}}', "another game"),
        ('{"position": "2", "moves": {"1 9": 1}}', "move '1 9'"),
        ('{"position": "2", "moves": {"1 1 1": 1}}', "the turn is over"),
    ],
)
def test_a_line_that_is_not_of_this_game_is_named(line: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        grade(WALK, play(), positions.parse(line, "file.jsonl"))
    assert "file.jsonl line 1" in str(caught.value)


def test_each_point_of_a_score_is_a_class_of_its_own() -> None:
    line = '{"actions": [1], "moves": {"0": 0.5, "1": 0.25, "2": 0.5}%s}'
    (result,), (score,) = (positions.parse(line % more, "file.jsonl") for more in ("", ', "score": true'))
    assert [one.loses_class(0.25) for one in (result, score)] == [False, True]
    assert not score.loses_class(0.5)


def test_files_that_cannot_be_read_or_hold_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("absent", "empty", "bytes"):
        with pytest.raises(ConfigError, match=name):
            positions.read(tmp_path / name)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABC"), st.dictionaries(st.integers(0, 5), st.integers(-2, 2), min_size=1, max_size=4), st.integers(0, 5)
        ),
        max_size=20,
    )
)
def test_losses_are_never_negative_and_classes_add_up(rows: list[tuple[str, dict[int, int], int]]) -> None:
    graded = [(Position((), {(action,): float(value) for action, value in moves.items()}, group), action) for group, moves, action in rows]
    found = summarise([judge(one, one.value(action)) for one, action in graded])
    assert found.positions == sum(count for _, count in found.by_class.values()) == len(rows)
    assert (
        found.errors
        == sum(errors for errors, _ in found.by_class.values())
        == sum(judge(one, one.value(action)).loses_class for one, action in graded)
    )
    assert all(loss >= 0 for loss in found.loss_by_class.values())
    total = sum(found.loss_by_class[name] * count for name, (_, count) in found.by_class.items())
    assert found.mean_loss * found.positions == pytest.approx(total)
