"""Beasty Bar: the core against a plainly written engine, the animals one by one, and what nobody may know."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.beasty_bar import BY_STRENGTH, POINTS, PlainBeasty

from azq import _core, games
from azq.arena.rules.beasty_bar import GreedyBeasty
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


def play_on(state: State, rng: random.Random, plies: int) -> State:
    """Random actions and outcomes, at most so many."""
    for _ in range(plies):
        if state.is_terminal():
            break
        state.apply_action(rng.choice(state.legal_actions()))
    return state


def decisions(players: int, count: int, seed: int) -> list[State]:
    """Positions in which a player is to move, from all over random games."""
    rng = random.Random(seed)
    states = []
    while len(states) < count:
        state = play_on(GAMES[players].new_initial_state(), rng, 4 * players + rng.randrange(20 * players))
        while state.is_chance_node():
            state.apply_action(rng.choice(state.legal_actions()))
        if not state.is_terminal():
            states.append(state)
    return states


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
                for each in (state, counted, plain):
                    each.apply_action(action) if each is not plain else plain.apply(action)
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


@pytest.mark.parametrize(("players", "count"), [(2, 1200), (3, 600), (4, 400)])
def test_every_ply_equals_the_plain_engine(players: int, count: int) -> None:
    compare_games(players, count, seed=players)


@pytest.mark.slow
@pytest.mark.parametrize(("players", "count"), [(2, 8000), (3, 4000), (4, 3000)])
def test_every_ply_of_thousands_of_games_equals_the_plain_engine(players: int, count: int) -> None:
    compare_games(players, count, seed=100 + players)


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


REST = "; hands PaKaMoCh LiHiCrSn; piles SeGiSnCrHiLi SkPaKaMoChSeZeGi; plays 0"
BROKEN = [
    ("queue -", "six parts"),
    ("bar - -; queue -; out - -; hands - -; piles - -; over", "'queue' belongs where 'bar' stands"),
    ("queue Xx0; bar - -; out - -" + REST, "'Xx' is no animal"),
    ("queue Ze2; bar - -; out - -" + REST, "'Ze2' is no animal with its player"),
    ("queue Ze0; bar -; out - -" + REST, "'bar' takes 2 words"),
    ("queue Ze0 Sk0; bar - -; out Ze -" + REST, "player 0's zebra is in two places"),
    ("queue Ze0; bar - -; out - -" + REST, "player 0's skunk is nowhere"),
    ("queue Ze0 Sk0; bar - -; out - -" + REST, "seats take turns from player 0"),
    ("queue Sk0; bar Ze -; out - -; hands PaKaMoCh LiHiCrSn; piles SeGiSnCrHiLi SkPaKaMoChSeZeGi; plays 0", "seats take turns"),
    ("queue Sk0; bar Ze -; out - HiLi; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 0", "odd number"),
    ("queue -; bar SkZe -; out - HiLi; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 0", "fifth animal"),
    ("queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 1", "not player 1's turn"),
    ("queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands PaKaMo CrSnSkPa; piles SeGiSnCrHiLiCh KaMoChSeZeGi; plays 0", "holds 3 cards, not 4"),
    ("queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; draws 0", "played last draws"),
    ("queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; over", "not over"),
    ("queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; 0", "the turn is"),
]


@pytest.mark.parametrize(("text", "rule"), BROKEN)
def test_a_position_that_cannot_arise_is_refused_by_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        GAMES[2].state_from_notation(text)


def test_a_history_that_leads_elsewhere_is_refused() -> None:
    state = decisions(2, 6, seed=11)[5]
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
    for state in decisions(players, 60, seed=players):
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


@pytest.mark.parametrize("players", [2, 3, 4])
def test_redrawing_what_is_hidden_changes_nothing_a_player_knows(players: int) -> None:
    rng = random.Random(players)
    changed = 0
    for state in decisions(players, 120, seed=20 + players):
        if rng.random() < 0.3:  # where somebody draws, too
            state.apply_action(rng.choice(state.legal_actions()))
        for viewer in range(players):
            other = state.resample_from_infostate(viewer, rng.randrange(2**32))
            assert other.information_state_string(viewer) == state.information_state_string(viewer)
            assert (other.packed_observation(viewer) == state.packed_observation(viewer)).all()
            if state.current_player() in (viewer, -4):
                assert other.legal_actions() == state.legal_actions()
            assert GAMES[players].state_from_notation(other.notation()).notation() == other.notation()  # a world with a true history
            changed += other.notation() != state.notation()
    assert changed > 100 * players


def chi_square(counts: Counter[Any], cells: int) -> float:
    """Pearson's statistic against equal shares, in standard deviations above its mean."""
    mean = sum(counts.values()) / cells
    statistic = sum((counts[key] - mean) ** 2 / mean for key in counts) + mean * (cells - len(counts))
    return float((statistic - (cells - 1)) / (2 * (cells - 1)) ** 0.5)


def hand_of(state: State, player: int) -> str:
    return state.notation().split("; ")[3].split()[1 + player]


def test_a_redrawn_hand_is_uniform() -> None:
    state = GAMES[2].new_initial_state()
    for _ in range(8):
        state.apply_action(state.legal_actions()[0])
    play_on(state, random.Random(3), 9)  # nine plies and draws on: player 1 has played twice
    held = Counter(hand_of(state.resample_from_infostate(0, seed), 1) for seed in range(21_000))
    assert len(held) == 210  # four of ten
    assert abs(chi_square(held, 210)) < 4.0


def test_a_redrawn_history_is_uniform() -> None:
    """All orders in which the other may have drawn, given what he has played: near the end they can be counted."""
    state = GAMES[2].new_initial_state()
    for _ in range(8):
        state.apply_action(state.legal_actions()[0])
    play_on(state, random.Random(4), 3)
    assert "; draws 1;" in state.notation()  # one card played by each, and player 1 is about to draw
    worlds = (state.resample_from_infostate(0, seed).information_state_string(1) for seed in range(40_000))
    orders = Counter(next(line for line in world.splitlines() if line.startswith("drawn")) for world in worlds)
    assert len(orders) == 4 * 11 * 10 * 9  # where the played card came, and the three others in order
    assert abs(chi_square(orders, 3960)) < 4.0


def test_hidden_targets_are_the_others_hands() -> None:
    rng = random.Random(5)
    for players in (2, 3, 4):
        game = GAMES[players]
        state = play_on(game.new_initial_state(), rng, 10**3)
        history = state.history()
        targets = game.targets(np.array(history, dtype=np.uint16))
        assert targets["margins"].tolist() == pytest.approx([state.margin(player) for player in range(players)])
        state = game.new_initial_state()
        for ply, action in enumerate(history):
            if not state.is_chance_node():
                wanted = []
                for seat in range(1, players):
                    hand = hand_of(state, (state.current_player() + seat) % players)
                    wanted += [int(CODES[name] in hand) for name in BY_STRENGTH]
                assert targets["hidden"][ply].tolist() == wanted
            state.apply_action(action)


def test_a_search_cannot_tell_what_its_player_cannot() -> None:
    config = _core.SearchConfig(algorithm="gumbel", num_simulations=64)
    for state in decisions(2, 12, seed=8):
        seen = []
        for world in (state, state.resample_from_infostate(state.current_player(), 1)):
            search = _core.Search(GAMES[2], config, num_slots=1, seed=7, autoplay=False)
            search.start_at(0, 3, world)
            run_flat(search)
            seen.append(search.result(0))
        assert seen[0].visit_counts.tolist() == seen[1].visit_counts.tolist()
        assert seen[0].root_value == seen[1].root_value


def run_flat(search: _core.Search) -> None:
    """Searches with equal priors and values of nought."""
    packed, slots = np.zeros((1, GAMES[2].packed_size()), np.uint8), np.zeros(1, np.int32)
    while search.collect(packed, slots):
        search.apply(np.zeros((1, 33), np.float16), np.zeros((1, 1), np.float16))


def play_match(players: list[GreedyBeasty | None], count: int, seed: int, table: int = 2) -> float:
    """Mean result of players[0] at a table of players[1]; None plays at random."""
    rng = random.Random(seed)
    total = 0.0
    for number in range(count):
        state, own = GAMES[table].new_initial_state(), number % table
        while not state.is_terminal():
            player = None if state.is_chance_node() else players[0 if state.current_player() == own else 1]
            action = rng.choice(state.legal_actions()) if player is None else player.choose([state])[0]
            state.apply_action(action)
        total += state.returns()[own]
    return total / count


def test_the_greedy_player_beats_random_play() -> None:
    assert play_match([GreedyBeasty(), None], 250, seed=1) > 0.7  # a share of 0.85; measured 0.91
    assert play_match([GreedyBeasty(), None], 60, seed=2, table=4) > 0.3


def test_the_greedy_player_does_not_peek() -> None:
    greedy = GreedyBeasty()
    for players in (2, 4):
        for state in decisions(players, 60, seed=players):
            worlds = [state.resample_from_infostate(state.current_player(), seed) for seed in range(3)]
            assert len(set(greedy.choose([state, *worlds]))) == 1


def test_parameters_are_named_where_one_is_wrong() -> None:
    assert games.load("beasty_bar").params == {"players": 2, "scoring": "points"}
    with pytest.raises(ConfigError, match="players = 5; it takes one of 2, 3, 4"):
        games.load("beasty_bar", players=5)
    with pytest.raises(ConfigError, match="scoring"):
        games.load("beasty_bar", scoring="heads")
