"""The graded positions: what the file holds, how grading counts, and what the exact solver says of both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from azq.arena.engines.solver import SolverPlayer
from azq.arena.grade import judge, mark
from azq.errors import IllegalActionError, MissingExtra, NotFound
from azq.ratings import positions as graded

CLASSES = {"BE", "BM", "BH", "ME", "MM", "EE"}


@pytest.fixture(scope="module")
def solver() -> Iterator[SolverPlayer]:
    pytest.importorskip("bitbully")
    solver = SolverPlayer()
    yield solver
    solver.close()


def test_six_classes_of_a_hundred_different_positions() -> None:
    positions = graded.load("connect_four")
    assert Counter(position.group for position in positions) == dict.fromkeys(CLASSES, 100)
    assert len({position.actions for position in positions}) == 600
    stones = {"B": range(15), "M": range(15, 29), "E": range(29, 42)}
    assert all(len(position.actions) in stones[position.group[0]] for position in positions)


def test_the_file_says_what_the_solver_says(solver: SolverPlayer) -> None:
    late = [position for position in graded.load("connect_four") if position.group != "BH"]
    for position in random.Random(1).sample(late, 60):
        scores = solver.scores(position.actions)
        assert {(action,): graded.sign(score) for action, score in scores.items()} == position.moves


def test_a_perfect_player_makes_no_error_and_the_worst_makes_all_that_can_be_made() -> None:
    positions = graded.load("connect_four")
    best = [max(p.moves, key=p.moves.__getitem__)[0] for p in positions]
    worst = [min(p.moves, key=p.moves.__getitem__)[0] for p in positions]
    assert mark(positions, best).errors == 0
    critical = sum(len(set(position.moves.values())) > 1 for position in positions)
    grade = mark(positions, worst)
    assert grade.errors == critical
    assert grade.by_class["BE"] == (86, 100)
    assert grade.error_share == critical / 600


def test_an_illegal_action_is_an_error() -> None:
    full = next(position for position in graded.load("connect_four") if len(position.moves) < 7)
    for illegal in (next(action for action in range(7) if (action,) not in full.moves), 7):
        assert judge(full, full.value(illegal)).loses_class


@pytest.mark.parametrize("count", [0, 1, 60, 200, 599, 600, 1000])
def test_a_choice_is_repeatable_and_shares_out_over_the_classes(count: int) -> None:
    positions = graded.load("connect_four")
    chosen = graded.choose(positions, count, 5)
    assert chosen == graded.choose(positions, count, 5)
    assert len(chosen) == min(count, 600)
    sizes = Counter(position.group for position in chosen)
    assert not sizes or max(sizes.values()) - min(sizes.get(name, 0) for name in CLASSES) <= 1


def test_a_game_without_positions_is_named() -> None:
    assert not graded.available("tic_tac_toe")
    with pytest.raises(NotFound, match="tic_tac_toe"):
        graded.load("tic_tac_toe")


def test_the_solver_refuses_what_does_not_replay_and_goes_on(solver: SolverPlayer) -> None:
    with pytest.raises(IllegalActionError):
        solver.scores([3] * 7)
    assert max(solver.scores([]), key=solver.scores([]).__getitem__) == 3


def test_a_missing_solver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="eval"):
        SolverPlayer()
