"""Games that begin with a part of another: which, with what, and that none of it is lost or learned from."""

from __future__ import annotations

import numpy as np
import pytest
from actor_doubles import RUN, Table, sections

from azq import games
from azq.actor.groups import FORK_SOURCES, Forks
from azq.config import SearchConfig, parse_run
from azq.errors import ConfigError
from azq.search.search import exploring, make_search
from azq.wire.arrays import unpack_record
from azq.wire.messages import GameRecord

TOE = games.load("tic_tac_toe")
LINE = (0, 3, 1, 4, 2)


def actions_of(record: GameRecord) -> list[int]:
    return list(np.frombuffer(record.actions, "<u2"))


def kept(*played: tuple[int, ...], share: float = 1.0) -> Forks:
    forks = Forks(share, seed=1)
    for actions in played:
        forks.keep(GameRecord(9, np.array(actions, "<u2").tobytes()))
    return forks


def test_new_games_begin_with_a_part_of_a_kept_one_and_a_legal_move():
    forks, lengths = kept(LINE), set()
    for uid in range(1, 200):
        record = forks.begin(TOE, GameRecord(uid))
        arrays = unpack_record(record, TOE.num_distinct_actions(), TOE.value_size())
        *begun, move = arrays["actions"].tolist()
        assert (record.uid, tuple(begun)) == (uid, LINE[: len(begun)])
        state = TOE.new_initial_state()
        for action in begun:
            state.apply_action(action)
        assert move in state.legal_actions()
        assert not any(arrays[name].any() for name in ("policies", "root_values", "simulations", "weight_versions"))
        lengths.add(len(begun))
    assert lengths == {0, 1, 2, 3, 4}


def test_games_under_way_none_of_the_share_and_the_first_ones_are_left_alone():
    under_way = GameRecord(3, np.array([4], "<u2").tobytes())
    assert kept(LINE).begin(TOE, under_way) is under_way
    fresh = GameRecord(4)
    assert kept().begin(TOE, fresh) is kept(LINE, share=0.0).begin(TOE, fresh) is fresh
    forks = kept(LINE, share=0.5)
    begun = [bool(forks.begin(TOE, fresh).actions) for _ in range(400)]
    assert 150 < sum(begun) < 250


def test_no_more_games_are_kept_than_needed():
    forks = kept(*[LINE] * (FORK_SOURCES + 5))
    assert len(forks._games) == FORK_SOURCES


def test_chance_is_left_to_the_game():
    backgammon, forks = games.load("backgammon"), Forks(1.0, seed=2)
    state, actions = backgammon.new_initial_state(), []
    for _ in range(6):
        actions.append(state.chance_outcomes()[0][0] if state.is_chance_node() else state.legal_actions()[0])
        state.apply_action(actions[-1])
    forks.keep(GameRecord(1, np.array(actions, "<u2").tobytes()))
    ends = set()
    for uid in range(100):
        begun, after = actions_of(forks.begin(backgammon, GameRecord(uid + 1))), backgammon.new_initial_state()
        for action in begun:
            after.apply_action(action)
        ends.add((len(begun), after.is_chance_node()))
    assert (0, True) in ends  # nothing was thrown yet, and nobody had a choice
    assert any(count and chance for count, chance in ends)


@pytest.mark.parametrize("game", ["tic_tac_toe", "openspiel:tic_tac_toe"])
def test_a_game_that_was_given_plies_has_no_random_opening(game):
    rules = games.load(game)
    search = make_search(rules, exploring(SearchConfig(num_simulations=4), random_opening_plies=9), num_slots=1, seed=3)
    for uid in range(1, 20):
        search.start(0, uid, np.array([4], np.uint16))
        assert search.record(0).actions.tolist() == [4]
        search.clear(0)
    lengths = set()
    for uid in range(1, 40):
        search.start(0, uid, np.zeros(0, np.uint16))
        lengths.add(len(search.record(0).actions))
        search.clear(0)
    assert len(lengths) > 5


def test_a_slice_forks_its_own_games_and_loses_none():
    table = Table()
    table.play(settings=sections(fork_share=1.0), should_stop=lambda: len(table.events) >= 40)
    assert table.balanced()
    begun = [event.record for event in table.events if not np.frombuffer(event.record.simulations, "<u2")[0]]
    assert 0 < len(begun) < len(table.events)  # the first games had nothing to begin with
    known = [actions_of(event.record) for event in table.events]
    for record in begun:
        actions, searched = actions_of(record), np.flatnonzero(np.frombuffer(record.simulations, "<u2"))
        given = int(searched[0]) if len(searched) else len(actions)
        assert any(actions[: given - 1] == other[: given - 1] for other in known if other is not actions)
    assert len(table.arenas.forks._games) == len(table.events)
    table.arenas.searches(TOE, sections(fork_share=1.0), 8, (RUN, 7))  # a run made again under its name
    assert not table.arenas.forks._games


def test_lockstep_refuses_forks():
    with pytest.raises(ConfigError, match=r"lockstep_games goes with none of .*selfplay.fork_share"):
        parse_run({"learner": {"lockstep_games": 8}, "selfplay": {"fork_share": 0.5}}, "here")
