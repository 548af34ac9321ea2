"""Players and matches over the real core: fairness of colours, batching, names, and that strength shows."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from azq import games
from azq.arena.analyse import analyse
from azq.arena.grade import grade
from azq.arena.match import deal, draw_outcome, play_match
from azq.arena.player import Ground, position
from azq.arena.players import PATTERN, PLAYERS, kind_of, make_player
from azq.arena.searcher import Searcher
from azq.config import SearchConfig
from azq.errors import AzqError, ConfigError, IllegalActionError
from azq.ratings import positions
from azq.ratings.elo import version_of, versions_of
from azq.search.evaluator import Evaluation, UniformEvaluator
from azq.wire.messages import LATEST, MatchSpec

CONNECT_FOUR = games.load("connect_four")
TIC_TAC_TOE = games.load("tic_tac_toe")


class Watching:
    """A uniform evaluator that remembers what was asked."""

    resent = 0

    def __init__(self, num_actions: int) -> None:
        self._uniform = UniformEvaluator(num_actions)
        self.batches: list[int] = []
        self.versions: set[int] = set()

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        self.batches.append(len(packed))
        self.versions.add(weight_version)
        return self._uniform.submit(packed)

    def result(self, handle: int, *, timeout_s: float) -> Evaluation:
        return self._uniform.result(handle, timeout_s=timeout_s)

    def close(self) -> None:
        pass


class Scripted:
    """Plays by a function of the history and remembers the seats it was asked for."""

    def __init__(self, name: str, seats: list[int]) -> None:
        self.name = name
        self.seats = seats

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        self.seats += [len(history) % 2 for history in histories]
        return [make_position(history).legal_actions()[0] for history in histories]

    def close(self) -> None:
        pass


def make_position(history: Sequence[int]) -> games.State:
    state = CONNECT_FOUR.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


def ground(game: games.Game = CONNECT_FOUR, simulations: int = 32, **changes: object) -> Ground:
    return Ground(game, UniformEvaluator(game.num_distinct_actions()), SearchConfig(), simulations, seed=1, **changes)  # type: ignore[arg-type]


def spec(first: str, second: str, count: int = 8, plies: int = 4) -> MatchSpec:
    return MatchSpec(first, second, count, 32, plies, 7)


def test_pairs_share_an_opening_and_swap_colours() -> None:
    dealt = deal(CONNECT_FOUR, MatchSpec("a", "b", 10, 1, 5, 1))
    assert len(dealt) == 10
    for first, second in zip(dealt[::2], dealt[1::2], strict=True):
        assert first.history == second.history
        assert (first.first_seat, second.first_seat) == (0, 1)
    assert len({tuple(one.history) for one in dealt}) > 1
    assert len(deal(CONNECT_FOUR, MatchSpec("a", "b", 3, 1, 0, 1))) == 4


def test_the_same_play_on_both_sides_ends_even() -> None:
    result = play_match(spec("a", "b", 20), CONNECT_FOUR, Scripted("a", []), Scripted("b", []))
    assert result.wins == result.losses
    assert result.wins + result.draws + result.losses == 20


def test_a_match_is_the_same_each_time_and_its_points_add_up() -> None:
    def once() -> tuple[int, int, int]:
        result = play_match(spec("uct:50", "random"), CONNECT_FOUR, make_player("uct:50", ground()), make_player("random", ground()))
        return result.wins, result.draws, result.losses

    assert once() == once()
    assert sum(once()) == 8


def test_a_search_with_an_ignorant_network_still_beats_random_at_tic_tac_toe() -> None:
    here = ground(TIC_TAC_TOE, 64)
    first, second = make_player("weights:3", here), make_player("random", here)
    result = play_match(MatchSpec("weights:3", "random", 20, 64, 1, 3), TIC_TAC_TOE, first, second)
    assert result.first == "weights:3"
    assert result.wins > 5 * result.losses


def test_the_match_batches_all_its_games_and_pins_the_version() -> None:
    evaluator = Watching(7)
    here = Ground(CONNECT_FOUR, evaluator, SearchConfig(), 8, latest=12, slots=16)
    play_match(spec("latest", "random", 16), CONNECT_FOUR, make_player("latest", here), make_player("random", here))
    assert max(evaluator.batches) == 16
    assert evaluator.versions == {12}
    assert make_player("latest", here).name == "weights:12"


@pytest.mark.parametrize("name", ["", "weights", "weights:x", "uct:0", "uct:-1", "uct", "stockfish", "latest:3:4"])
def test_a_name_of_no_known_form_is_refused_with_the_forms(name: str) -> None:
    with pytest.raises(ConfigError, match="uct:<simulations>"):
        make_player(name, ground())


@pytest.mark.parametrize("name", ["weights:12", "latest", "uct:100", "pimc:20", "rule", "gnubg:2", "gtp:gnugo --mode gtp"])
def test_the_pattern_of_names_is_that_of_the_table(name: str) -> None:
    assert re.search(PATTERN, name)
    assert re.fullmatch(kind_of(name).pattern, name)
    assert version_of(name) == (12 if name == "weights:12" else None)


@pytest.mark.parametrize("name", ["gtp:", "gtp:a\nb", "gtp:gnug\u00f6", f"gtp:{'x' * 201}", "uct:10000000", "file:a.safetensors"])
def test_requests_name_no_file_and_no_command_that_a_log_would_not_show_as_it_is(name: str) -> None:
    assert not re.search(PATTERN, name)


def test_only_who_holds_the_file_seats_its_player() -> None:
    with pytest.raises(ConfigError, match="azq match"):
        make_player("file:a.safetensors", ground())


def test_the_page_about_players_lists_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "9-arena.md").read_text()
    assert [kind.form for kind in PLAYERS if f"`{kind.form}`" not in page] == []


def test_an_opening_that_ends_the_game_is_refused() -> None:
    with pytest.raises(ConfigError, match="opening_plies"):
        play_match(MatchSpec("random", "random", 2, 1, 9, 0), TIC_TAC_TOE, make_player("random", ground()), make_player("random", ground()))


def test_the_solver_never_loses_as_first_player_to_uct() -> None:
    pytest.importorskip("bitbully")
    solver, uct = make_player("solver", ground()), make_player("uct:30", ground())
    try:
        result = play_match(spec("solver", "uct:30", 6, 1), CONNECT_FOUR, solver, uct)
        solved = positions.choose([one for one in positions.load("connect_four") if one.group in ("ME", "EE", "MM")], 30, 1)
        assert grade(CONNECT_FOUR, solver, solved).errors == 0
    finally:
        solver.close()
    assert result.losses <= 1


def test_the_solver_knows_one_game_only() -> None:
    with pytest.raises(ConfigError, match="tic_tac_toe"):
        make_player("solver", ground(TIC_TAC_TOE))


def test_uct_is_between_random_and_perfect_on_the_positions() -> None:
    chosen = positions.choose(positions.load("connect_four"), 120, 1)
    shares = {name: grade(CONNECT_FOUR, make_player(name, ground()), chosen).error_share for name in ("random", "uct:100")}
    assert 0.4 < shares["random"] < 0.7
    assert 0.0 < shares["uct:100"] < 0.3


def test_more_positions_than_slots_are_searched_in_turn() -> None:
    histories = [[action] for action in range(7)] * 2
    few = Searcher(CONNECT_FOUR, UniformEvaluator(7), SearchConfig(), 16, slots=3)
    many = Searcher(CONNECT_FOUR, UniformEvaluator(7), SearchConfig(), 16, slots=14)
    assert [r.best_action for r in few.results(histories)] == [r.best_action for r in many.results(histories)]


def test_a_searcher_is_whole_again_after_a_position_that_does_not_replay() -> None:
    searcher = Searcher(CONNECT_FOUR, UniformEvaluator(7), SearchConfig(), 16, slots=4)
    with pytest.raises(IllegalActionError):
        searcher.results([[3], [3] * 7])
    assert len(searcher.results([[3], [2]])) == 2


def test_the_tick_can_end_a_search() -> None:
    class Enough(AzqError):
        pass

    def tick() -> None:
        raise Enough

    with pytest.raises(Enough):
        Searcher(CONNECT_FOUR, UniformEvaluator(7), SearchConfig(), 16, tick=tick).results([[]])


def test_analysis_finds_the_win_and_the_block() -> None:
    win, block = [0, 6, 1, 6, 2, 5], [0, 6, 1, 6, 3, 6]
    answers = analyse(CONNECT_FOUR, UniformEvaluator(7), [win, block], num_simulations=200, config=SearchConfig())
    assert answers[0]["action"] == 3
    assert answers[0]["value"] > 0.9
    assert answers[1]["action"] in (2, 6)
    assert len(answers[0]["visit_counts"]) == 7
    assert analyse(CONNECT_FOUR, UniformEvaluator(7), [], num_simulations=2, config=SearchConfig()) == []


@pytest.mark.parametrize("name", games.names())
def test_the_expected_line_is_legal_and_ends_before_chance_and_secrets(name: str) -> None:
    game, luck = games.load(name), random.Random(3)
    state = game.new_initial_state()
    history: list[int] = []
    histories: list[list[int]] = []
    while not state.is_terminal() and len(histories) < 40:
        action = draw_outcome(state, luck) if state.is_chance_node() else luck.choice(state.legal_actions())
        if not state.is_chance_node():
            histories.append(list(history))
        history.append(action)
        state.apply_action(action)
    searcher = Searcher(game, UniformEvaluator(game.num_distinct_actions(), game.value_size()), SearchConfig(), 24, slots=8)
    found = searcher.results_and_lines(histories)
    assert [result.best_action for result, _ in found] == [line[0] for _, line in found]
    for before, (_, line) in zip(histories, found, strict=True):
        at = position(game, before)
        mover = at.current_player()
        for action in line:
            assert not at.is_chance_node()
            assert at.current_player() == mover or not game.is_hidden()
            at.apply_action(action)
    assert max(len(line) for _, line in found) > 1 or game.is_hidden() or name == "2048"  # where chance follows every move


@pytest.mark.parametrize(
    ("name", "versions", "version"),
    [("weights:3", (3,), 3), ("weights:3,12", (3, 12), None), ("latest", (), None), ("uct:3", (), None), ("gtp:weights,3", (), None)],
)
def test_a_name_tells_its_versions(name: str, versions: tuple[int, ...], version: int | None) -> None:
    assert versions_of(name) == versions
    assert version_of(name) == version
