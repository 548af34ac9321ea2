"""Beasty Bar: the core against a plainly written engine, the animals one by one, and its notation."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.beasty_bar import BY_STRENGTH, POINTS, PlainBeasty
from reference.random_play import decisions, play_on

from azq import games
from azq.errors import ConfigError
from azq.games import State

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


def position(queue: str, card: str) -> State:
    """Player 0 to play `card` behind a queue of two players; whatever else has been played is out."""
    queued = [(word[:2], int(word[2])) for word in queue.split()]
    played = max(Counter(owner for _, owner in queued).values(), default=0)
    hands, piles, out = [], [], []
    for player in (0, 1):
        own = [code for code, owner in queued if owner == player]
        rest = [code for code in CODES.values() if code not in own and (player == 1 or code != card)]
        gone, rest = rest[: played - len(own)], rest[played - len(own) :]
        hand = [card, *rest[:3]] if player == 0 else rest[:4]
        hands.append("".join(hand))
        piles.append("".join(code for code in rest if code not in hand) or "-")
        out.append("".join(gone) or "-")
    text = f"queue {queue or '-'}; bar - -; out {' '.join(out)}; hands {' '.join(hands)}; piles {' '.join(piles)}; plays 0"
    return GAMES[2].state_from_notation(text)


def named(state: State, text: str) -> int:
    """The action of that name."""
    return {state.action_to_string(action): action for action in state.legal_actions()}[text]


# The queue before, what player 0 plays, the queue after it, and who leaves.
ANIMALS = [
    ("Ze1 Li1", "lion", "Ze1 Li1", "Li0"),
    ("Ze1 Mo1 Pa1", "lion", "Li0 Ze1 Pa1", "Mo1"),
    ("Sk1 Ze1 Sn1", "hippo", "Sk1 Ze1 Hi0 Sn1", ""),
    ("Hi1 Sk1", "hippo", "Hi1 Hi0 Sk1", ""),
    ("Li1 Sk1 Cr1", "hippo", "Li1 Hi0 Cr1", "Sk1"),  # the crocodile then eats the skunk
    ("Sk1 Ze1 Pa1 Sn1", "crocodile", "Sk1 Ze1 Cr0", "Pa1 Sn1"),
    ("Cr1 Sk1", "crocodile", "Cr1 Cr0", "Sk1"),
    ("Hi1 Sk1", "crocodile", "Hi1 Cr0", "Sk1"),
    ("Sk1 Pa1", "crocodile", "Cr0", "Sk1 Pa1"),
    ("Ze1 Ze0 Li1", "snake", "Li1 Sn0 Ze1 Ze0", ""),
    ("Ze0 Ze1 Sn1", "snake", "Sn1 Sn0 Ze0 Ze1", ""),
    ("Sk1 Ze1", "giraffe", "Sk1 Gi0 Ze1", ""),
    ("Sk1 Gi1", "giraffe", "Gi1 Sk1 Gi0", ""),
    ("Sk1 Pa1 Gi1", "zebra", "Sk1 Gi1 Pa1 Ze0", ""),
    ("Sk1 Cr1", "zebra", "Cr1 Ze0", "Sk1"),
    ("Pa1 Sk1 Hi1", "zebra", "Hi1 Pa1 Sk1 Ze0", ""),
    ("Gi1 Pa1 Hi1", "seal", "Hi1 Se0 Gi1 Pa1", ""),  # the hippo, now in front, acts first
    ("Hi1 Gi1 Pa1", "seal", "Hi1 Se0 Gi1 Pa1", ""),  # the giraffe first, and once, though the hippo overtakes it
    ("Hi1 Sk1", "monkey", "Hi1 Sk1 Mo0", ""),
    ("Hi1 Sk1 Mo1", "monkey", "Mo0 Mo1 Sk1", "Hi1"),
    ("Li1 Hi1 Ze1", "skunk", "Ze1 Sk0", "Li1 Hi1"),
    ("Ze0 Ze1 Pa1 Sk1", "skunk", "Sk1 Sk0", "Ze0 Ze1 Pa1"),
    ("", "kangaroo jumps 0", "Ka0", ""),
    ("Li1", "kangaroo jumps 1", "Ka0 Li1", ""),
    ("Li1 Ze1 Sk1", "kangaroo jumps 2", "Li1 Ka0 Ze1 Sk1", ""),
    ("Li1 Hi1", "kangaroo jumps 1", "Li1 Hi1 Ka0", ""),  # the hippo takes its place back
    ("", "parrot in vain", "Pa0", ""),
    ("Li1 Ze1 Sk1", "parrot at 0", "Ze1 Sk1 Pa0", "Li1"),
    ("", "chameleon in vain", "Ch0", ""),
    ("Ch1", "chameleon in vain", "Ch1 Ch0", ""),
    ("Li1 Mo1", "chameleon as lion", "Li1 Mo1", "Ch0"),
    ("Hi1 Sk1 Pa1", "chameleon as hippo", "Hi1 Ch0 Sk1 Pa1", ""),
    ("Hi1 Sk1 Cr1", "chameleon as hippo", "Hi1 Cr1", "Sk1 Ch0"),  # which the crocodile it passed then eats
    ("Cr1 Sk1", "chameleon as crocodile", "Cr1 Ch0", "Sk1"),
    ("Pa1 Ch1 Sn1", "chameleon as snake", "Sn1 Ch0 Ch1 Pa1", ""),
    ("Gi1 Ze1", "chameleon as giraffe", "Gi1 Ch0 Ze1", ""),
    ("Ze1 Sk1", "chameleon as zebra", "Ze1 Sk1 Ch0", ""),
    ("Se1 Pa1", "chameleon as seal", "Ch0 Pa1 Se1", ""),
    ("Sk1 Mo1 Mo0 Cr1", "chameleon as monkey", "Ch0 Mo0 Mo1 Sk1", "Cr1"),
    ("Ch1 Sk1 Pa1 Ka1", "chameleon as skunk", "Sk1 Pa1 Ch0", "Ch1 Ka1"),
    ("Ka1 Li1", "chameleon as kangaroo jumps 2", "Ch0 Ka1 Li1", ""),
    ("Pa1 Ze1", "chameleon as parrot at 0", "Ze1 Ch0", "Pa1"),
]


@pytest.mark.parametrize(("queue", "play", "after", "leaving"), ANIMALS, ids=lambda value: value or "nobody")
def test_an_animal_does_what_its_card_says(queue: str, play: str, after: str, leaving: str) -> None:
    state = position(queue, CODES[play.split()[0]])
    gone = out(state)
    state.apply_action(named(state, play))
    assert state.notation().split("; ")[0] == f"queue {after or '-'}"
    assert out(state) - gone == set(leaving.split())


def out(state: State) -> set[str]:
    """Who is out, with owners."""
    words = state.notation().split("; ")[2].split()[1:]
    return {word[i : i + 2] + str(owner) for owner, word in enumerate(words) for i in range(0, len(word.strip("-")), 2)}


def test_the_fifth_animal_opens_the_bar() -> None:
    state = position("Li1 Hi1 Cr1 Sn1", "Ze")
    state.apply_action(named(state, "zebra"))
    queue, bar = state.notation().split("; ")[:2]
    assert (queue, bar) == ("queue Cr1 Sn1", "bar - LiHi")
    assert "Ze0" in out(state)


def test_a_chameleon_copies_whatever_else_is_queued() -> None:
    state = position("Ka1 Pa1 Ch1 Se1", "Ch")
    own = [state.action_to_string(a) for a in state.legal_actions() if a >= 17]
    assert own == [
        f"chameleon as {what}" for what in ("seal", "kangaroo jumps 1", "kangaroo jumps 2", *(f"parrot at {i}" for i in range(4)))
    ]


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
