"""Beasty Bar: the core against a plainly written engine, the animals one by one, and its notation."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.beasty_bar import BY_STRENGTH, POINTS, PlainBeasty
from reference.random_play import decisions, play_on

from azq import games
from azq.errors import ConfigError

CODES = {name: name[:2].capitalize() for name in BY_STRENGTH}
NAMES = {code: name for name, code in CODES.items()}
GAMES = {n: games.load("beasty_bar", players=n) for n in (2, 3, 4)}
COUNTED = {n: games.load("beasty_bar", players=n, scoring="count") for n in (2, 3, 4)}


def described(plain: PlainBeasty) -> str:
    """The position in the words of the core's notation, without its turn and history."""

    def sets(of: list[set[str]]) -> str:
        return " ".join("".join(CODES[name] for name in reversed(BY_STRENGTH) if name in cards) or "-" for cards in of)

    def owned(animals: list[tuple[int, str]]) -> list[set[str]]:
        return [{name for owner, name in animals if owner == player} for player in range(plain.players)]

    queue = " ".join(f"{CODES[name]}{owner}" for owner, name in plain.queue) or "-"
    return (
        f"queue {queue}; bar {sets(owned(plain.bar))}; out {sets(owned(plain.out))}; hands {sets(plain.hands)}; piles {sets(plain.piles)};"
    )


def compare_games(players: int, count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        state, counted, plain = GAMES[players].new_initial_state(), COUNTED[players].new_initial_state(), PlainBeasty(players)
        deal = [player for player in range(players) for _ in range(4)]
        while deal or not plain.over():
            drawer = deal.pop(0) if deal else None
            if drawer is None:
                assert state.current_player() == plain.player
                assert state.legal_actions() == plain.legal()
                drawer, action = plain.player, rng.choice(plain.legal())
                state.apply_action(action)
                counted.apply_action(action)
                plain.apply(action)
                assert state.notation().startswith(described(plain))
            if plain.piles[drawer]:
                assert state.is_chance_node()
                species = rng.choice(sorted(plain.piles[drawer]))
                outcomes = dict(state.chance_outcomes())
                assert {BY_STRENGTH[outcome] for outcome in outcomes} == plain.piles[drawer]
                assert all(chance == pytest.approx(1 / len(outcomes)) for chance in outcomes.values())
                plain.draw(drawer, species)
                for each in (state, counted):
                    each.apply_action(BY_STRENGTH.index(species))
        assert state.is_terminal()
        assert state.returns() == pytest.approx(plain.returns("points"))
        assert counted.returns() == pytest.approx(plain.returns("count"))
        lead = plain.points(0) - max(plain.points(player) for player in range(1, players))
        assert state.margin(0) == pytest.approx(lead / 36)


@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.release)])
@pytest.mark.parametrize(("players", "count"), [(2, 1000), (3, 400), (4, 250)])
def test_every_ply_equals_the_plain_engine(players: int, count: int, times: int) -> None:
    compare_games(players, times * count, seed=players)


# The queue before, what player 0 plays, the queue after it, and who leaves.
@given(st.integers(0, 2**32), st.sampled_from([2, 3, 4]), st.integers(0, 120))
@settings(max_examples=150, deadline=None)
def test_a_position_survives_its_notation(seed: int, players: int, plies: int) -> None:
    game = GAMES[players]
    state = play_on(game.new_initial_state(), random.Random(seed), plies)
    again = game.state_from_notation(state.notation())
    assert (again.notation(), str(again), again.current_player()) == (state.notation(), str(state), state.current_player())
    assert again.legal_actions() == state.legal_actions()
    assert again.returns() == state.returns()
    for player in range(players):
        assert again.information_state_string(player) == state.information_state_string(player)
        assert (again.packed_observation(player) == state.packed_observation(player)).all()
    brief = game.state_from_notation(state.notation().split("; drawn")[0])
    assert brief.notation() == state.notation().split("; drawn")[0]
    assert brief.legal_actions() == state.legal_actions()
    same = random.Random(seed + 1)
    assert str(play_on(brief, random.Random(seed + 1), 9)) == str(play_on(again, same, 9))


def test_a_history_that_leads_elsewhere_is_refused() -> None:
    state = decisions(GAMES[2], 6, 11, 48)[5]
    head, drawn, played = state.notation().rsplit("; ", 2)
    for wrong, rule in [
        (f"{head}; {drawn}; {played} 0", "not legal there|does not lead"),
        (f"{head}; {drawn}; {played.rsplit(' ', 1)[0]}", "does not lead to this position"),
        (f"{head}; drawn SkSk Sk; {played}", "player 0's skunk is drawn twice"),
        (f"{head}; {drawn}Sk; {played}", "drawn twice|does not lead"),
    ]:
        with pytest.raises(ConfigError, match=rule):
            GAMES[2].state_from_notation(wrong)


@given(st.text(alphabet="queue bar;out hands piles plays draws 0123 -LiSkZe", max_size=120))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        GAMES[2].state_from_notation(text)


@pytest.mark.parametrize("players", [2, 3, 4])
def test_an_observation_has_a_column_a_card_and_a_plane_a_place(players: int) -> None:
    for state in decisions(GAMES[players], 60, players, 24 * players):
        parts = [part.split()[1:] for part in state.notation().split("; ")]
        for viewer in range(players):
            planes, scalars = state.observation_tensor(viewer)[:, 0], state.scalars(viewer)
            assert planes.shape == (9, 12 * players)
            assert (planes.sum(axis=0) == 1).all()  # every card is somewhere
            wanted = np.zeros_like(planes)

            def put(plane: int, owner: int, code: str) -> None:
                wanted[plane, 12 * ((owner - viewer) % players) + BY_STRENGTH.index(NAMES[code])] = 1  # noqa: B023

            for place, card in enumerate(parts[0]):
                if card != "-":
                    put(place, int(card[2]), card[:2])
            for part, plane in ((1, 5), (2, 6), (3, 7), (4, 8)):
                for owner, cards in enumerate(parts[part]):
                    for i in range(0, len(cards.strip("-")), 2):
                        put(8 if part == 3 and owner != viewer else plane, owner, cards[i : i + 2])
            assert (planes == wanted).all()
            points = [planes[5, 12 * seat : 12 * seat + 12] @ [POINTS[name] for name in BY_STRENGTH] for seat in range(players)]
            hands = [4 * len(parts[3][(viewer + seat) % players].strip("-")) // 2 for seat in range(players)]
            left = (planes[7:].sum()).item()
            assert scalars.tolist() == [4 * (planes[:4].sum()), *points, left, *hands, 4 * viewer]


def test_parameters_are_named_where_one_is_wrong() -> None:
    assert games.load("beasty_bar").params == {"players": 2, "scoring": "points"}
    with pytest.raises(ConfigError, match="players = 5; it takes one of 2, 3, 4"):
        games.load("beasty_bar", players=5)
    with pytest.raises(ConfigError, match="scoring"):
        games.load("beasty_bar", scoring="heads")
