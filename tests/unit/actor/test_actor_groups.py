"""Groups of games and what their arenas keep: searches, the width of a group, games to fork from."""

from __future__ import annotations

import numpy as np
import pytest
from actor_doubles import GAME, RUN, Table, after, sections

from azq import games
from azq.actor import Arenas, Stop
from azq.actor.groups import FEWEST_GAMES, FIRST_GAMES, FORK_SOURCES, Forks, Width
from azq.config import RunSections, SearchConfig, parse_run
from azq.errors import ConfigError
from azq.search.search import exploring, make_search
from azq.wire.arrays import unpack_record
from azq.wire.messages import GameRecord


@pytest.fixture
def table() -> Table:
    return Table()


def test_arenas_outlive_a_slice_and_follow_the_settings() -> None:
    arenas = Arenas()
    first = arenas.searches(GAME, sections(), 8)
    assert arenas.searches(GAME, sections(), 8) is first
    assert [search.num_slots for search in first] == [4, 4]
    second = arenas.searches(GAME, sections(), 9)
    assert [search.num_slots for search in second] == [5, 4]


def test_all_groups_share_a_cache_that_another_run_finds_empty(table: Table) -> None:
    memory = table.arenas.searches(GAME, sections(), 8, RUN)[0].memory_bytes
    assert table.arenas.memory_bytes > 2 * memory  # the cache is counted once
    first = table.play(should_stop=after(200)).progress.searched
    again = table.play(should_stop=after(200)).progress.searched
    assert 0 < first["cache_hits"] + first["merged_leaves"] < first["cache_lookups"]
    assert again["cache_hits"] > first["cache_hits"]
    other = table.arenas.searches(GAME, sections(), 8, "another run")
    packed, slots = np.zeros((4, GAME.packed_size()), np.uint8), np.zeros(4, np.int32)
    other[0].start(0, 1, np.zeros(0, np.uint16))
    assert other[0].collect(packed, slots) == 1  # the initial position, which the last run's games all knew


def first_leaf(arenas: Arenas, made_ms: int) -> bytes:
    """The first position that a new game's search asks for, packed; empty where it ended without."""
    search = arenas.searches(GAME, sections(), 8, (RUN, made_ms))[0]
    packed, slots = np.zeros((4, GAME.packed_size()), np.uint8), np.zeros(4, np.int32)
    search.start(0, 1, np.zeros(0, np.uint16))
    return packed[: search.collect(packed, slots)].tobytes()


@pytest.mark.parametrize(("made_ms", "known"), [(1, True), (2, False)])
def test_a_run_made_again_under_its_name_finds_the_cache_empty(table: Table, made_ms: int, known: bool) -> None:
    table.play(should_stop=after(200), made_ms=1)
    initial = first_leaf(Arenas(), made_ms=1)  # nothing is known there: the initial position itself
    assert (first_leaf(table.arenas, made_ms) != initial) == known


@pytest.mark.parametrize("groups", [1, 3, 5, 8])
def test_any_number_of_groups_plays_the_same_games(table: Table, groups: int) -> None:
    def games_of(settings: RunSections) -> dict[int, GameRecord]:
        here = Table()
        end = here.play(settings=settings, should_stop=lambda: len(here.events) >= 24)
        assert end.stop is Stop.ASKED
        assert here.all_in_the_pool()
        return {event.record.uid: event.record for event in here.events}

    expected, found = games_of(sections()), games_of(sections(groups=groups))
    common = expected.keys() & found.keys()
    assert len(common) >= 16
    assert all(found[uid] == expected[uid] for uid in common)


def settled(width: Width, slots: int, game_s: float, fixed_s: float = 0.0) -> int:
    """What it comes to where an evaluation takes so long a game and so long besides."""
    for _ in range(200):
        games = width.games(slots)
        width.answered(games, fixed_s + game_s * games)
    return width.games(slots)


def test_without_a_time_as_many_as_there_are_slots() -> None:
    width = Width(0.0)
    assert width.games(512) == 512
    width.answered(512, 10.0)
    assert width.games(512) == 512


@pytest.mark.parametrize(("game_s", "expected"), [(0.0001, 250), (0.00001, 512), (0.01, FEWEST_GAMES)])
def test_it_comes_to_the_games_that_are_evaluated_in_time(game_s: float, expected: int) -> None:
    width = Width(0.025)
    assert width.games(512) == FIRST_GAMES
    assert settled(width, 512, game_s) == pytest.approx(expected, abs=1)


def test_what_a_request_costs_whatever_it_holds_is_part_of_its_time() -> None:
    games = settled(Width(0.025), 512, 0.0001, fixed_s=0.005)
    assert games == pytest.approx(200, abs=2)  # 5 ms and 200 times 0.1 ms


def test_one_late_answer_is_soon_forgotten() -> None:
    width = Width(0.025)
    before = settled(width, 512, 0.0001)
    width.answered(before, 5.0)
    assert width.games(512) < before / 2
    assert settled(width, 512, 0.0001) == before


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
