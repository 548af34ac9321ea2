"""What no honest tab sends is refused, each for one clear reason; what an honest one sends is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from honest_tabs import TinyNetworks, games_of, order_of, returned, with_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.parts.volunteers.handouts import Returned, Terms
from azq.parts.volunteers.plausibility import Implausible, Outdated, SearchOrder, check
from azq.search.recomputation import differs, recompute
from azq.wire.arrays import arrays_of
from azq.wire.messages import GameRecord

GAMES = ("tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar", "othello")


def made(name: str, uids: range = range(1, 4)) -> tuple[SearchOrder, list[Returned]]:
    order = order_of(name, num_simulations=4)
    return order, games_of(order, TinyNetworks(order.game), uids)


C4_ORDER, C4_GAMES = made("connect_four")
DICE_ORDER, DICE_GAMES = made("backgammon", range(1, 3))


def arrays(order: SearchOrder, game: Returned) -> dict[str, Any]:
    found = arrays_of(game.record, order.game.num_distinct_actions(), order.game.value_size(), "it")
    return {name: array.copy() for name, array in found.items()}


@pytest.mark.parametrize("name", GAMES)
def test_honest_games_pass(name: str) -> None:
    order, games = made(name)
    for game in games:
        replayed = check(order, game)
        assert len(replayed.returns) == order.game.num_players()
        assert {ply.ply for ply in replayed.own} == set(np.flatnonzero(arrays(order, game)["simulations"]))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", ["connect_four", "backgammon"])  # no games of the core: Hypothesis keeps them past the core's end
def test_any_other_action_is_refused_unless_it_is_a_game_as_well(name: str, data: st.DataObject) -> None:
    """A changed action breaks the rules, ends the game elsewhere, or turns its luck; what passes is a whole game, left to recomputation."""
    order, games = (C4_ORDER, C4_GAMES) if name == "connect_four" else (DICE_ORDER, DICE_GAMES)
    game = data.draw(st.sampled_from(games))
    found = arrays(order, game)
    ply = data.draw(st.integers(0, len(found["actions"]) - 1))
    found["actions"][ply] ^= data.draw(st.integers(1, 2**16 - 1))
    try:
        replayed = check(order, with_arrays(game, actions=found["actions"]))
    except Implausible:
        return
    state = order.game.new_initial_state()
    for action in found["actions"].tolist():
        state.apply_action(action)
    assert state.is_terminal()
    assert tuple(state.returns()) == replayed.returns


def changed(name: str, ply: int, value: Any) -> Returned:
    found = arrays(C4_ORDER, C4_GAMES[0])
    found[name][ply] = value
    return with_arrays(C4_GAMES[0], **{name: found[name]})


FULL = np.zeros(7, np.float16)
LAST = len(C4_GAMES[0].record.actions) // 2 - 1


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        (changed("simulations", LAST // 2, 0), "targets where nothing was searched"),
        (changed("policies", LAST // 2, FULL), "none where something was"),
        (changed("policies", LAST // 2, FULL + np.float16(0.2)), "no distribution"),
        (changed("policies", LAST // 2, np.float16("nan")), "no distribution"),
        (changed("root_values", LAST // 2, 1.5), "root value outside"),
        (changed("root_values", LAST // 2, np.nan), "root value outside"),
        (changed("weight_versions", LAST // 2, 4), "said to be of weights version 4, the game was handed out for 3"),
        (changed("weight_versions", LAST // 2, 2), "said to be of weights version 2, the game was handed out for 3"),
        (replace(C4_GAMES[0], handed=C4_GAMES[1].record), "does not go on from what was handed out"),
        (returned(GameRecord(1)), "dice, cards or opening from ply 0 on"),
        (returned(GameRecord(1, b"\x00")), "no whole number of plies"),
    ],
)
def test_what_no_search_makes_is_refused_by_its_reason(game: Returned, reason: str) -> None:
    with pytest.raises(Implausible, match=reason):
        check(C4_ORDER, game)


def test_a_game_cut_short_is_refused() -> None:
    found = arrays(C4_ORDER, C4_GAMES[0])
    with pytest.raises(Implausible, match="not over"):
        check(C4_ORDER, with_arrays(C4_GAMES[0], **{name: array[:-1] for name, array in found.items()}))


@pytest.mark.parametrize("name", ["connect_four", "backgammon", "blob"])
def test_a_game_under_another_number_has_the_wrong_luck(name: str) -> None:
    order, games = made(name)
    record = games[0].record
    other = GameRecord(99, *(getattr(record, field) for field in record.__struct_fields__[1:]))
    with pytest.raises(Implausible, match="are not those of game 99"):
        check(order, returned(other, terms=games[0].terms))


def test_a_search_claimed_for_a_ply_of_the_opening_in_place_of_the_next_is_refused() -> None:
    """With one random ply and the same column twice the actions alone fit: the luck says that the second ply was searched."""
    order = order_of("connect_four", num_simulations=4)
    games = games_of(order, TinyNetworks(order.game), range(1, 65))
    game, plies = next(
        (game, plies)
        for game in games
        for plies in [arrays(order, game)]
        if plies["simulations"].tolist()[:2] == [0, 4] and plies["actions"][0] == plies["actions"][1]
    )
    swapped = {name: array for name, array in plies.items() if name != "actions"}
    for array in swapped.values():
        array[[0, 1]] = array[[1, 0]]
    with pytest.raises(Implausible, match="opening from ply 0 on"):
        check(order, with_arrays(game, **swapped))


def test_given_plies_are_nobodys_to_be_judged_by() -> None:
    game = C4_GAMES[0]
    found = arrays(C4_ORDER, game)
    handed = GameRecord(game.record.uid, *(found[name][:6].tobytes() for name in found))
    assert min(ply.ply for ply in check(C4_ORDER, replace(game, handed=handed)).own) >= 6


def test_weights_of_the_hand_out_that_are_kept_no_more_are_nobodys_fault() -> None:
    order = order_of("connect_four", num_simulations=4, versions=(4, 5))
    with pytest.raises(Outdated, match="version 3 is too old"):
        check(order, C4_GAMES[0])


def test_every_ply_has_the_budget_of_the_hand_out() -> None:
    """Also one whose search ended early, which does not tell its budget."""
    order = order_of("connect_four", num_simulations=32)
    networks = TinyNetworks(order.game)
    half = games_of(order, networks, [1, 2, 3], config=order.config(16))
    plies = [ply for game in half for ply in check(order, replace(game, terms=Terms(3, 16))).own]
    assert {ply.budget for ply in plies} == {16}
    found = recompute(order.game, order.seed, order.config, plies, networks)
    assert not any(differs(each, exact=True) for each in found)


@pytest.mark.parametrize("name", ["backgammon", "blob"])
def test_a_game_that_servers_began_goes_on_however_its_policies_were_kept(name: str) -> None:
    """Servers leave zeros of policies out, tabs do not."""
    order, games = made(name, range(1, 2))
    found = arrays(order, games[0])
    kept = {name: array[:30] for name, array in found.items()}
    there = kept["policies"] != 0
    support = np.packbits(there, axis=1, bitorder="little").tobytes()
    parts = {name: (array[there] if name == "policies" else array).tobytes() for name, array in kept.items()}
    handed = GameRecord(1, **parts, support=support)
    whole = with_arrays(Returned(GameRecord(1), handed, games[0].terms), **found)
    assert min(ply.ply for ply in check(order, whole).own) >= 30
    found["policies"][np.flatnonzero(found["simulations"])[2]] = 0.5
    with pytest.raises(Implausible, match="does not go on"):
        check(order, with_arrays(whole, policies=found["policies"]))
