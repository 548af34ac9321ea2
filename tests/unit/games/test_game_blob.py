"""Blob against a plain engine; its sampler of hidden cards against full enumeration."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from reference.blob import CARDS, SUITS, VARIANTS, PlainRound
from reference.random_play import settle

from azq import games
from azq.errors import ConfigError
from azq.games import State


def parts(state: State) -> tuple[dict[str, str], list[list[str]]]:
    """Head and dealt hands of a position, from its notation."""
    head, hands, *_ = state.notation().split("|")
    return {word[0]: word[1:] for word in head.split()}, [hand.split() for hand in hands.split("/")]


def plain(state: State, params: dict[str, Any]) -> PlainRound:
    head, hands = parts(state)
    keys = ("hook", "scoring", "points_per_trick", "off_bid_penalty")
    rules = {key: params[key] for key in keys if key in params}
    return PlainRound(hands, head["t"], int(head["d"]), **rules)


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_every_ply_equals_the_plain_engine(params: dict[str, Any]) -> None:
    game = games.load("blob", **params)
    rng = random.Random(1)
    for _ in range(250):
        state = game.new_initial_state()
        settle(state, rng)
        oracle = plain(state, params)
        while not oracle.over():
            assert state.current_player() == oracle.to_move
            names = {state.action_to_string(action): action for action in state.legal_actions()}
            assert set(names) == set(oracle.legal())
            chosen = rng.choice(sorted(names))
            state.apply_action(names[chosen])
            oracle.apply(chosen)
        assert state.is_terminal()
        top = _best(params, oracle.cards)
        assert state.returns() == pytest.approx([oracle.score(player) / top for player in range(oracle.players)])


def _best(params: dict[str, Any], cards: int) -> Any:
    scoring = params.get("scoring", "exact")
    return {"exact": 10 + cards, "square": 10 + cards**2, "plus": 5 + cards, "openspiel": 10 + cards * params.get("points_per_trick", 1)}[
        scoring
    ]


def test_a_whole_game_has_its_rounds_trumps_and_dealers() -> None:
    game = games.load("blob", players=5, cards=7, mode="game", dealer=1)
    rng = random.Random(4)
    state = game.new_initial_state()
    seen, totals = [], np.zeros(5)
    while not state.is_terminal():
        settle(state, rng)
        params = {"players": 5, "cards": 7}
        oracle = plain(state, params)
        head, _ = parts(state)
        seen.append((int(head["c"]), head["t"], int(head["d"])))
        while not oracle.over():
            names = {state.action_to_string(action): action for action in state.legal_actions()}
            chosen = rng.choice(sorted(names))
            state.apply_action(names[chosen])
            oracle.apply(chosen)
        totals += [oracle.score(player) for player in range(5)]
    cards = [7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7]
    assert seen == [(c, "SHCDN"[i % 5], (1 + i) % 5) for i, c in enumerate(cards)]
    assert state.returns() == pytest.approx(totals / sum(10 + c for c in cards))


def test_hidden_cards_are_drawn_uniformly_over_all_consistent_deals() -> None:
    """Three players with two cards left, voids on both sides: every consistent deal of a short pack is as likely as every other."""
    game = games.load("blob", players=3, cards=16, trump="none", hook=False)
    rng = random.Random(6)
    for attempt in range(400):
        state = game.new_initial_state()
        settle(state, rng)
        while not state.is_terminal() and len(_left(state, 0)) > 2:
            state.apply_action(rng.choice(state.legal_actions()))
        if state.is_terminal() or state.notation().split("|")[3].split().__len__() % 3:
            continue
        deals = _consistent(state, viewer=0)
        if not 20 <= len(deals) <= 150:
            continue
        draws = 40 * len(deals)
        counts = Counter(_others(state.resample_from_infostate(0, 7919 * attempt + n)) for n in range(draws))
        assert set(counts) <= deals
        assert len(counts) == len(deals)
        expected = draws / len(deals)
        chi2 = sum((counts[deal] - expected) ** 2 / expected for deal in deals)
        freedom = len(deals) - 1
        assert chi2 < freedom + 5 * (2 * freedom) ** 0.5
        return
    pytest.fail("no position with voids was found")


def _left(state: State, player: int) -> list[str]:
    _, hands = parts(state)
    played = set(state.notation().split("|")[3].split())
    return [card for card in hands[player] if card not in played]


def _others(state: State) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(_left(state, 1)), frozenset(_left(state, 2))


def _consistent(state: State, viewer: int) -> set[tuple[frozenset[str], frozenset[str]]]:
    """All deals of the unseen cards to players 1 and 2 that agree with what they failed to follow."""
    assert viewer == 0
    played = state.notation().split("|")[3].split()
    _, hands = parts(state)
    voids: dict[int, set[str]] = {1: set(), 2: set()}
    owner = {card: player for player, hand in enumerate(hands) for card in hand}
    for first in range(0, len(played), 3):
        for card in played[first + 1 : first + 3]:
            if card[1] != played[first][1] and owner[card]:
                voids[owner[card]].add(played[first][1])
    unseen = [card for card in CARDS if card not in played and card not in hands[0]]
    sizes = {player: len(_left(state, player)) for player in (1, 2)}
    found = set()
    for one in itertools.combinations([card for card in unseen if card[1] not in voids[1]], sizes[1]):
        rest = [card for card in unseen if card not in one and card[1] not in voids[2]]
        found |= {(frozenset(one), frozenset(two)) for two in itertools.combinations(rest, sizes[2])}
    return found if voids[1] or voids[2] else set()


def test_suits_are_alike() -> None:
    """A game and its image under any permutation of the suits look alike at every ply, trump and all."""
    game = games.load("blob", players=4, cards=6)
    planes, rows, columns = game.observation_planes()
    rng = random.Random(8)
    for symmetry in range(24):
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        suits = {SUITS[s]: SUITS[actions[13 * s] // 13] for s in range(4)} | {"N": "N"}
        state, image = game.new_initial_state(), game.new_initial_state()
        while not state.is_terminal():
            action = rng.choice(state.legal_actions())
            if state.is_chance_node():
                name = state.action_to_string(action)
                trump = name.startswith("trump")
                other = "SHCD".index(suits["SHCD"[action]]) if trump else (action if name == "no trump" else int(actions[action]))
            else:
                assert sorted(actions[state.legal_actions()]) == image.legal_actions()
                turned = state.observation_tensor().reshape(planes, -1)[:, cells].reshape(planes, rows, columns)
                np.testing.assert_array_equal(turned, image.observation_tensor())
                np.testing.assert_array_equal(state.scalars(), image.scalars())
                other = int(actions[action])
            state.apply_action(action)
            image.apply_action(other)
        assert image.returns() == state.returns()


def test_hidden_targets_are_the_others_hands() -> None:
    game = games.load("blob", players=3, cards=4)
    rng = random.Random(9)
    state = game.new_initial_state()
    while not state.is_terminal():
        if not state.is_chance_node():
            ply, viewer = len(state.history()), state.current_player()
            wanted = [_left(state, (viewer + seat) % 3) for seat in (1, 2)]
            action = rng.choice(state.legal_actions())
            state.apply_action(action)
            hidden = game.targets(np.array(state.history(), np.uint16))["hidden"][ply].reshape(2, 52)
            assert [{CARDS[card] for card in np.flatnonzero(row)} for row in hidden] == [set(hand) for hand in wanted]
        else:
            state.apply_action(rng.choice(state.legal_actions()))


def test_the_winner_of_a_trick_leads_again() -> None:
    line = "c2 tS d2 | AS KS / 2S 3H / 4H 5H | 2 0 1 | AS 2S 4H | 0 0 0"
    state = games.load("blob", players=3, cards=2, trump="spades", dealer=2).state_from_notation(line)
    assert state.current_player() == 0


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"players \* cards must not exceed 52"):
        games.load("blob", players=8, cards=7)
    with pytest.raises(ConfigError, match="dealer must be one of the players"):
        games.load("blob", players=3, dealer=3)
