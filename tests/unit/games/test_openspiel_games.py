"""`openspiel:NAME` is what open_spiel plays, step by step, and what azq cannot play is refused by name."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from azq import games
from azq.errors import ConfigError, UnknownGameError
from azq.games.check import check

pyspiel = pytest.importorskip("pyspiel")
GAMES: list[tuple[str, dict[str, Any]]] = [
    ("tic_tac_toe", {}),
    ("kuhn_poker", {}),
    ("kuhn_poker", {"players": 3}),
    ("leduc_poker", {}),
    ("liars_dice", {"dice_sides": 3}),  # open_spiel cannot draw its dice again
    ("pig", {}),
    ("breakthrough", {"rows": 5, "columns": 4}),
    ("y", {"board_size": 4}),
    ("chess", {"chess960": True}),  # its type knows of no chance, its first position is one
]


@pytest.mark.parametrize(("name", "params"), GAMES)
def test_every_step_is_open_spiels(name: str, params: dict[str, Any]) -> None:
    game, theirs = games.load(f"openspiel:{name}", **params), pyspiel.load_game(name, params)
    utility = max(abs(theirs.min_utility()), abs(theirs.max_utility()))
    rng = random.Random(1)
    for _ in range(2 if name == "chess" else 20):
        state, other = game.new_initial_state(), theirs.new_initial_state()
        while not other.is_terminal():
            assert state.current_player() == other.current_player()
            assert state.legal_actions() == sorted(other.legal_actions())
            if other.is_chance_node():
                assert state.chance_outcomes() == other.chance_outcomes()
            else:
                for player in range(theirs.num_players()):
                    seen = np.ravel(state.raw_observation(player))  # type: ignore[attr-defined]
                    np.testing.assert_array_equal(seen, other.observation_tensor(player))
                assert state.action_to_string(other.legal_actions()[0]) == other.action_to_string(other.legal_actions()[0])
            action = rng.choice(other.legal_actions())
            state.apply_action(action)
            other.apply_action(action)
        assert state.is_terminal()
        assert state.history() == other.history()
        np.testing.assert_allclose(np.multiply(state.returns(), utility), other.returns(), atol=1e-6)


@pytest.mark.parametrize(("name", "params"), [*GAMES[:-1], ("misere", {"game": "breakthrough(rows=5,columns=4)"})])
def test_they_keep_the_rules_of_azq(name: str, params: dict[str, Any]) -> None:
    report = check(games.load(f"openspiel:{name}", **params), games=2)
    assert report.sound, report.findings


def test_only_what_a_game_has_is_declared() -> None:
    flags = {name: games.load(f"openspiel:{name}") for name in ("tic_tac_toe", "kuhn_poker", "pig")}
    assert {name: (game.is_chance(), game.is_hidden()) for name, game in flags.items()} == {
        "tic_tac_toe": (False, False),
        "kuhn_poker": (True, True),
        "pig": (True, False),
    }
    assert flags["tic_tac_toe"].max_chance_outcomes() == 0


def test_large_numbers_are_scaled_to_fit_and_not_cut() -> None:
    """Mancala shows how many stones a pit holds, up to dozens; at 16 to one, eight and more would all read 127."""
    game, rng = games.load("openspiel:mancala"), random.Random(3)
    state, read = game.new_initial_state(), dict[float, set[int]]()
    while not state.is_terminal():
        for stones, number in zip(state.raw_observation(0), state.scalars(0), strict=True):  # type: ignore[attr-defined]
            read.setdefault(float(stones), set()).add(int(number))
        state.apply_action(rng.choice(state.legal_actions()))
    assert max(read) > 127 / 16  # else this shows nothing
    assert all(len(numbers) == 1 for numbers in read.values())
    assert len(set.union(*read.values())) == len(read)  # no two counts read alike
    assert max(set.union(*read.values())) <= 127


def test_bits_stay_bits() -> None:
    assert games.load("openspiel:tic_tac_toe").num_scalars() == 0
    assert games.load("openspiel:leduc_poker").observation_planes()[0] == 0


def test_a_board_keeps_its_planes() -> None:
    shapes = {name: games.load(f"openspiel:{name}").observation_planes() for name in ("breakthrough", "tic_tac_toe", "y")}
    assert shapes == {name: tuple(pyspiel.load_game(name).observation_tensor_shape()) for name in shapes}


def test_what_was_seen_stays_as_it_was() -> None:
    """OpenSpiel writes each observation over the one before."""
    state = games.load("openspiel:tic_tac_toe").new_initial_state()
    before = state.raw_observation(0)  # type: ignore[attr-defined]
    kept = before.copy()
    state.apply_action(4)
    state.raw_observation(0)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(before, kept)


def test_two_threads_see_each_its_own_position() -> None:
    game = games.load("openspiel:tic_tac_toe")
    states = [game.new_initial_state() for _ in range(2)]
    states[1].apply_action(4)
    rows = [state.packed_observation(0) for state in states]

    def look(number: int) -> bool:
        return all((states[number % 2].packed_observation(0) == rows[number % 2]).all() for _ in range(2000))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(look, range(4)))


def test_a_game_without_observations_shows_what_its_player_knows() -> None:
    state, other = games.load("openspiel:hearts").new_initial_state(), pyspiel.load_game("hearts").new_initial_state()
    while other.is_chance_node():
        state.apply_action(action := other.legal_actions()[0])
        other.apply_action(action)
    np.testing.assert_array_equal(state.raw_observation(0), other.information_state_tensor(0))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("goofspiel", "simultaneous moves"),
        ("bargaining", "two players and is not zero-sum"),
        ("crossword", "shows a network nothing"),
        ("phantom_ttt", "hides information and open_spiel cannot draw it again"),
    ],
)
def test_what_azq_cannot_play_is_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        games.load(f"openspiel:{name}")


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("misere", {}, "needs parameters.*: game=NAME, a game"),
        ("misere", {"game": "tic tac toe"}, "parameter game is a game, not 'tic tac toe'; write game=NAME"),
        ("misere", {"game": "efg_game(filename=x)"}, "open no files"),
        ("nfg_game", {}, "is read from a file"),
        ("go", {"size": 9}, "no parameter size; it takes board_size, handicap, komi, max_game_length"),
        ("chess", {"chess960": "yes"}, "parameter chess960 is of the kind bool"),
        ("universal_poker", {"numPlayers": 6}, "open_spiel dies of SIGSEGV"),
        ("dots_and_boxes", {"num_rows": 0}, "it must hold that num_rows_ >= 1"),
    ],
)
def test_parameters_are_refused_in_words_of_ours(name: str, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        games.load(f"openspiel:{name}", **params)


def test_an_unknown_game_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownGameError, match=r"has no game 'tictactoe'; did you mean tic_tac_toe\?"):
        games.load("openspiel:tictactoe")


def test_large_scores_of_a_game_for_one_have_a_scale_that_begins_where_random_play_ends() -> None:
    game = games.load("openspiel:2048")
    scale = game.scores()
    assert scale is not None
    assert scale[:2] == (0.0, 20480.0)
    assert 300 < scale[2] < 2000
    state, rng = game.new_initial_state(), random.Random(5)
    while not state.is_terminal():
        state.apply_action(rng.choice(state.legal_actions()))
    assert -0.8 < state.returns()[0] < 0.0  # 0.04 of the linear scale
    assert games.load("openspiel:catch").scores() is None
