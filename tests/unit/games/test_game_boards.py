"""Othello, gomoku and hex against their oracles, ply by ply."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from reference.boards import PlainOthello, longest_line

from azq import games
from azq.errors import ConfigError

pyspiel = pytest.importorskip("pyspiel")

AGAINST_OPENSPIEL = [
    ("othello", {}, "othello", 250),
    ("gomoku", {"size": 9}, "gomoku(size=9)", 80),
    ("gomoku", {}, "gomoku(size=15)", 40),
    ("gomoku", {"size": 19}, "gomoku(size=19)", 12),
    ("hex", {"size": 5}, "hex(board_size=5)", 300),
    ("hex", {"size": 5, "swap": True}, "hex(board_size=5,swap=True)", 300),
    ("hex", {}, "hex(board_size=11)", 60),
]


@pytest.mark.parametrize(("name", "params", "other", "count"), AGAINST_OPENSPIEL, ids=lambda value: str(value))
def test_every_ply_equals_openspiel(name: str, params: dict[str, Any], other: str, count: int) -> None:
    ours, theirs = games.load(name, **params), pyspiel.load_game(other)
    rng = random.Random(1)
    for _ in range(count):
        state, oracle = ours.new_initial_state(), theirs.new_initial_state()
        while not oracle.is_terminal():
            assert not state.is_terminal()
            assert state.current_player() == oracle.current_player()
            assert state.legal_actions() == oracle.legal_actions()
            action = rng.choice(oracle.legal_actions())
            state.apply_action(action)
            oracle.apply_action(action)
        assert state.is_terminal()
        assert state.returns() == oracle.returns()


@pytest.mark.parametrize("size", [6, 8])
def test_every_ply_of_othello_equals_the_plain_one(size: int) -> None:
    game = games.load("othello", size=size)
    rng = random.Random(2)
    for _ in range(40):
        state, oracle = game.new_initial_state(), PlainOthello(size)
        while not oracle.over():
            assert state.current_player() == oracle.player
            assert state.legal_actions() == oracle.legal()
            action = rng.choice(oracle.legal())
            state.apply_action(action)
            oracle.apply(action)
            assert str(state) == str(oracle)
        assert state.is_terminal()
        assert state.returns()[0] == (oracle.lead() > 0) - (oracle.lead() < 0)
        assert state.margin(0) == pytest.approx(oracle.lead() / size**2)


@pytest.mark.parametrize("exact5", [False, True])
def test_six_in_line_wins_only_where_five_need_not_be_exact(exact5: bool) -> None:
    game = games.load("gomoku", size=9, exact5=exact5)
    rng = random.Random(3)
    sixes = 0
    for _ in range(250):
        state, stones = game.new_initial_state(), ({*()}, {*()})  # type: ignore[var-annotated]
        row = rng.randrange(9)
        while not state.is_terminal():
            player = state.current_player()
            line = [9 * row + c for c in range(9) if 9 * row + c in state.legal_actions()]
            wanted = line if player == 0 and line and rng.random() < 0.8 else state.legal_actions()
            action = rng.choice(wanted)
            cell = divmod(action, 9)
            stones[player].add(cell)
            state.apply_action(action)
            longest = longest_line(stones[player], cell)
            won = 5 in longest or (not exact5 and max(longest) > 5)
            sixes += max(longest) > 5
            assert state.is_terminal() == (won or len(stones[0]) + len(stones[1]) == 81)
            assert state.returns()[player] == (1.0 if won else 0.0)
    assert sixes > 5


def test_after_a_pass_values_belong_to_whoever_moves() -> None:
    game = games.load("othello", size=6)
    rng = random.Random(4)
    passes = 0
    for _ in range(60):
        state = game.new_initial_state()
        while not state.is_terminal():
            actions = state.legal_actions()
            before = state.current_player()
            passes += actions == [36]
            state.apply_action(rng.choice(actions))
            if not state.is_terminal():
                assert state.current_player() == 1 - before
        assert sum(state.returns()) == 0
    assert passes > 10


@pytest.mark.parametrize(
    ("name", "params"), [("othello", {}), ("othello", {"size": 6}), ("gomoku", {"size": 9}), ("hex", {"size": 5, "swap": True})]
)
def test_a_position_survives_its_notation(name: str, params: dict[str, Any]) -> None:
    game = games.load(name, **params)
    rng = random.Random(5)
    for _ in range(25):
        state = game.new_initial_state()
        while True:
            again = game.state_from_notation(state.notation())
            assert again.notation() == state.notation()
            assert str(again) == str(state)
            assert again.legal_actions() == state.legal_actions()
            assert again.returns() == state.returns()
            assert (again.packed_observation() == state.packed_observation()).all()
            if state.is_terminal():
                break
            state.apply_action(rng.choice(state.legal_actions()))


def turned(game: games.Game, state: games.State, symmetry: int) -> games.State:
    """The image of a position under a symmetry, by way of its notation."""
    size = game.observation_planes()[1]
    cells = str(state).replace("\n", "").replace(" ", "")
    source = game.plane_permutation(symmetry)
    image = "".join(cells[source[cell]] for cell in range(size * size))
    rows = [re.sub(r"\.+", lambda run: str(len(run[0])), image[size * row : size * (row + 1)]) for row in range(size)]
    return game.state_from_notation("/".join(rows) + " " + "xo"[state.current_player()])


@pytest.mark.parametrize("size", [6, 8])
def test_othello_turns_into_itself(size: int) -> None:
    game = games.load("othello", size=size)
    rng = random.Random(6)
    for number in range(64):
        symmetry = number % 8
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        state = game.new_initial_state()
        for _ in range(rng.randrange(1, 30)):
            if not state.is_terminal():
                state.apply_action(rng.choice(state.legal_actions()))
        if state.is_terminal():
            continue
        image = turned(game, state, symmetry)
        assert sorted(actions[state.legal_actions()]) == image.legal_actions()
        planes = state.observation_tensor().reshape(3, -1)[:, cells].reshape(3, size, size)
        assert (planes == image.observation_tensor()).all()
        action = rng.choice(state.legal_actions())
        state.apply_action(action)
        image.apply_action(int(actions[action]))
        assert image.returns() == state.returns()


BROKEN = [
    ("othello", {}, "8/8/8/3o4/3xo3/8/8/8 x", "never empty"),
    ("othello", {}, "x7/8/8/3ox3/3xo3/8/8/8 x", "stands apart"),
    ("othello", {}, "8/8/8/3ox3/3xo3/8/8/8 x 1", "nothing follows"),
    ("gomoku", {"size": 9}, "9/9/9/9/4x4/9/9/9/9 x e5", "not this side's move"),
    ("gomoku", {"size": 9}, "9/9/9/9/4x4/9/9/9/9 o", "is no stone of the side that moved"),
    ("gomoku", {"size": 9}, "9/9/9/9/9/9/9/9/9 x a1", "nobody has moved"),
    ("gomoku", {"size": 9}, "xxxxx4/ooooo4/9/9/9/9/9/9/9 x a2", "the side to move has five"),
    ("gomoku", {"size": 9}, "xxxxx4/oooo5/9/9/9/9/9/9/8x o i9", "not this side's move"),
    ("gomoku", {"size": 9}, "xxxxx4/ooooo4/9/9/9/9/9/9/8x o i9", "five"),
    ("hex", {"size": 5}, "x4/x4/x4/x4/x4 o", "not this side's move"),
    ("hex", {"size": 5}, "x4/xo3/x1o2/x2o1/x3o x", "not this side's move"),
    ("hex", {"size": 5}, "x4/xo3/xo3/xo3/xoo2 x", "joined its edges already"),
    ("hex", {"size": 5}, "5/5/5/5/5 x swapped", "comes 'swapped' or nothing"),
]


@pytest.mark.parametrize(("name", "params", "text", "rule"), BROKEN)
def test_a_position_that_cannot_arise_is_refused_by_its_rule(name: str, params: dict[str, Any], text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        games.load(name, **params).state_from_notation(text)


def test_sizes_are_named_where_one_is_wrong() -> None:
    with pytest.raises(ConfigError, match="othello: parameter size = 7; it takes one of 8, 6"):
        games.load("othello", size=7)
    with pytest.raises(ConfigError, match="gomoku: parameter exact5 = 1; it takes true or false"):
        games.load("gomoku", exact5=1)
    assert games.load("hex").params == {"size": 11, "swap": False}


def test_searches_take_states_of_their_own_size_only() -> None:
    from azq._core import Uct

    uct = Uct(games.load("hex", size=5), num_simulations=10, seed=1)
    with pytest.raises(ValueError, match="other parameters"):
        uct.best_action(games.load("hex", size=7).new_initial_state())
