"""Games solved exactly: known results, chance, endgames against another solver, and what is refused."""

from __future__ import annotations

import itertools
import random
from itertools import islice
from pathlib import Path

import pytest

from azq import games
from azq.arena.engines.solver import SolverPlayer
from azq.arena.solve import Drawn, Table, by_looks, by_notation, check_solvable, endgames
from azq.errors import ConfigError
from azq.notation.units import unit
from azq.ratings.positions import sign

FOLDER = Path(__file__).parents[2] / "games"
NIM = games.load(f"{FOLDER / 'nim.py'}:Nim", heap=9)
COPY = games.load(f"{FOLDER / 'copied.py'}:TicTacToe")


def test_tic_tac_toe_has_5478_positions_and_is_a_draw() -> None:
    table = Table(by_notation, 10_000)
    assert table.solve(games.load("tic_tac_toe").new_initial_state()).value() == 0.0
    assert len(table.values) == 5478


@pytest.mark.parametrize(("key", "positions"), [(by_notation, 326), (by_looks, 18)])
def test_nim_is_lost_on_multiples_of_four(key: object, positions: int) -> None:
    """Its notation is its actions: only looks join two ways to a position."""
    drawn = Drawn(1000, 0)
    table = Table(key, 5000, on_solved=drawn)  # type: ignore[arg-type]
    assert table.solve(NIM.new_initial_state()).value() == 1.0
    assert len(table.values) == positions
    for one in drawn.kept:
        left = 9 - sum(action + 1 for action in one.actions)
        assert {action for action, value in one.moves.items() if value == 1.0} == {left % 4 - 1}


@pytest.mark.parametrize("key", [by_notation, by_looks])
def test_one_player_alone_reaches_the_best_score(key: object) -> None:
    coins = games.load(f"{FOLDER / 'coins.py'}:Coins")
    most: dict[tuple[int, int], int] = {}  # from each cell on, what lies on the best way
    for row, column in itertools.product(reversed(range(6)), repeat=2):
        lies = (7 * row * row + 3 * row * column + 5 * column) % 10
        most[row, column] = lies + max(most.get((row + 1, column), 0), most.get((row, column + 1), 0))
    root = Table(key, 5000).solve(coins.new_initial_state())  # type: ignore[arg-type]
    assert unit(coins).convert(root.value()) == pytest.approx(most[0, 0])
    right, down = (unit(coins).convert(root.solved().moves[action]) for action in (0, 1))
    assert (right, down) == pytest.approx((most[0, 1], most[1, 0]))  # nothing lies where it begins


def test_luck_counts_by_its_probabilities() -> None:
    dice = games.load(f"{FOLDER / 'copied.py'}:Dice", players=2)
    after_five = dice.new_initial_state()
    after_five.apply_action(1)
    safe, roll = 0.0, (1 - 4) / 6  # six wins, five is equal, four outcomes lose
    assert Table(by_notation, 1000).solve(after_five).solved().moves == pytest.approx({0: roll, 1: safe})


def test_endgames_of_connect_four_as_another_solver_has_them() -> None:
    pytest.importorskip("bitbully")
    game, solver = games.load("connect_four"), SolverPlayer()
    found = [one for one in islice(endgames(game, 4, by_notation, 3_000, random.Random(1)), 200) if one]
    assert len(found) >= 10
    for one in found:
        scores = solver.scores(one.actions)
        assert one.moves == {action: sign(score) for action, score in scores.items()}
    solver.close()


def test_too_many_positions_name_the_remedies() -> None:
    with pytest.raises(ConfigError, match=r"more than 1,000 positions; .*--endgames PLIES.*--by-looks"):
        Table(by_notation, 1000).solve(COPY.new_initial_state())
    too_few = endgames(NIM, 9, by_notation, 3, random.Random(1))
    with pytest.raises(ConfigError, match="more than 3 positions"):
        list(islice(too_few, 500))


@pytest.mark.parametrize(("name", "why"), [("blob", "4 players"), ("beasty_bar", "players|hides")])
def test_what_has_no_value_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_solvable(games.load(name))


def test_secrets_of_two_players_are_refused() -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(ConfigError, match="hides information"):
        check_solvable(games.load("openspiel:kuhn_poker"))


def test_play_that_may_go_on_for_ever_is_refused(tmp_path: Path) -> None:
    code = (FOLDER / "nim.py").read_text().replace("self.left -= action + 1", "self.left -= action")
    (tmp_path / "waiting.py").write_text(code)
    waiting = games.load(f"{tmp_path / 'waiting.py'}:Nim", heap=4)
    with pytest.raises(ConfigError, match="can come again"):
        Table(by_looks, 1000).solve(waiting.new_initial_state())
