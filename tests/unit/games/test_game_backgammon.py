"""Backgammon against a plain generator and gnubg: complete turns as sets of end positions, results, position IDs."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from reference.backgammon import Board, turns
from reference.random_play import play_out, settle

from azq import games
from azq.games import State

START = "4HPwATDgc/ABMA"
PASS = 150


def sides(state: State) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checkers of x and o, each by point in their own numbering."""
    found = []
    for line in str(state).splitlines()[:2]:
        points = [0] * 26
        for name, count in re.findall(r"(\w+):(\d+)", line):
            points[{"bar": 25, "off": 0}.get(name) or (0 if name == "off" else int(name))] = int(count)
        found.append(tuple(points))
    return found[0], found[1]


def board(state: State, player: int) -> Board:
    """The board as the player sees it."""
    both = sides(state)
    return both[player], both[1 - player]


def dice_of(state: State) -> tuple[int, int]:
    """What was rolled."""
    pair = state.notation().split(":")[1]
    return int(pair[0]), int(pair[1])


def ends(state: State) -> dict[Board, list[int]]:
    """End positions of the turn at hand, with a line of micro-moves to each."""
    player = state.current_player()
    found: dict[Board, list[int]] = {}
    stack: list[tuple[State, list[int]]] = [(state, [])]
    while stack:
        here, line = stack.pop()
        for action in here.legal_actions():
            after = here.clone()
            after.apply_action(action)
            if after.current_player() == player:
                stack.append((after, [*line, action]))
            else:
                found[board(after, player)] = [*line, action]
    return found


def fresh_turns(params: dict[str, Any], seed: int, count: int) -> list[State]:
    """Positions right after a roll, from random games."""
    rng = random.Random(seed)
    game = games.load("backgammon", **params)
    found: list[State] = []
    while len(found) < count:
        state = game.new_initial_state()
        settle(state, rng)
        while not state.is_terminal() and len(found) < count:
            player = state.current_player()
            found.append(state.clone())
            while state.current_player() == player:
                state.apply_action(rng.choice(state.legal_actions()))
            settle(state, rng)
    return found


@pytest.mark.parametrize("start", ["standard", "race", "bearoff"])
def test_complete_turns_equal_the_plain_generator(start: str) -> None:
    for state in fresh_turns({"start": start}, 3, 400):
        player = state.current_player()
        assert set(ends(state)) == turns(board(state, player), dice_of(state)), state.notation()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.release)])
def test_turns_equal_gnubg(count: int) -> None:
    gnubg = pytest.importorskip("gnubg_nn")
    for state in fresh_turns({}, 6, count):
        player, dice = state.current_player(), dice_of(state)
        here = gnubg.board_from_position_id(state.notation().split(":")[0])
        own, other = board(state, player)
        assert list(here[1]) == [*own[1:25], own[25]]
        assert list(here[0]) == [*other[1:25], other[25]]
        if ends(state) == {(own, other): [PASS]}:
            continue  # gnubg lists no passes
        keys = gnubg.moves(here, *dice)
        theirs = {tuple(tuple(side) for side in gnubg.board_from_position_key(key)) for key in keys}
        assert {(_gnubg_side(rest), _gnubg_side(mine)) for mine, rest in ends(state)} == theirs


def _gnubg_side(points: tuple[int, ...]) -> tuple[int, ...]:
    return points[1:26]


def test_the_start_has_its_position_id() -> None:
    game = games.load("backgammon")
    state = game.state_from_notation(f"{START}:31")
    assert state.notation() == f"{START}:31"
    assert {state.action_to_string(action) for action in state.legal_actions()} >= {"x 8/5", "x 6/5"}
    assert sides(state)[0] == sides(state)[1] == sides(game.new_initial_state())[0]


def test_chance_is_named_and_sums_to_one() -> None:
    state = games.load("backgammon").new_initial_state()
    outcomes = state.chance_outcomes()
    assert len(outcomes) == 30
    assert sum(probability for _, probability in outcomes) == pytest.approx(1)
    assert {state.action_to_string(outcome) for outcome, _ in outcomes} >= {"x rolls 21", "o rolls 65"}
    later = games.load("backgammon").state_from_notation(f"{START}:00")
    weights = {later.action_to_string(outcome): probability for outcome, probability in later.chance_outcomes()}
    assert len(weights) == 21
    assert weights["x rolls 66"] == pytest.approx(1 / 36)
    assert weights["x rolls 65"] == pytest.approx(2 / 36)


def test_results_and_outcomes_agree_under_every_scoring() -> None:
    points: Counter[tuple[str, int]] = Counter()
    for scoring in ("full", "gammons", "winloss"):
        game = games.load("backgammon", scoring=scoring)
        weights, bias = game.outcome_combination()
        rng = random.Random(8)
        for _ in range(40):
            state = play_out(game.new_initial_state(), rng)
            targets = game.targets(np.array(state.history(), np.uint16))
            assert not targets["truncated"]
            for player in range(2):
                assert bias + weights @ targets["outcomes"][player] == pytest.approx(state.returns()[player], abs=1e-6)
            points[scoring, round(abs(state.returns()[0]) * {"full": 3, "gammons": 2, "winloss": 1}[scoring])] += 1
    assert points["full", 3] > 0
    assert points["full", 2] > 0
    assert points["full", 1] > 0
    assert points["gammons", 3] == 0
    assert points["winloss", 1] == 40


def test_a_capped_game_is_truncated_and_worth_nothing() -> None:
    game = games.load("backgammon", max_turns=6)
    state = play_out(game.new_initial_state(), random.Random(9))
    assert state.returns() == [0, 0]
    assert game.targets(np.array(state.history(), np.uint16))["truncated"]
