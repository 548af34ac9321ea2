"""A match in parts is the whole match, game by game and figure by figure, whatever came twice, late or not at all."""

from __future__ import annotations

import random
from typing import Any

import pytest
from arena_doubles import CardGame, Choosing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from azq import games
from azq.arena.match import MatchGame, failed, play_match, result_of, whole_groups
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.ratings.matches import job_of, part_of, put_together, split
from azq.search.evaluator import UniformEvaluator
from azq.stats import sequential_test
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchResult, MatchSpec
from azq.wire.parts import opponents, spec_of, whole_of

CARDS: Any = CardGame()
FIGURES = ("wins", "draws", "losses", "games", "seats", "share", "points", "points_se", "score")
SPRT = (0.0, 30.0, 0.05, 0.05)


def played(spec: MatchSpec, name: str) -> tuple[MatchResult, dict[int, list[int]]]:
    """The result, and every game by its number, with networks and searches that draw at random."""
    game, kept = games.load(name), dict[int, list[int]]()
    ground = Ground(game, UniformEvaluator(game.num_distinct_actions(), game.value_size()), SearchConfig(), 4, seed=spec.seed)
    first, second = (make_player(player, ground) for player in (spec.first, spec.second))

    def remember(spec: MatchSpec, game: Any, first: str, second: str, ended: list[MatchGame]) -> MatchResult:
        kept.update({one.history.number: list(one.history) for one in ended})  # type: ignore[attr-defined]
        return result_of(spec, game, first, second, ended)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("azq.arena.match.result_of", remember)
        return play_match(spec, game, first, second), kept


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("tic_tac_toe", "uct:20", "random"),
        ("connect_four", "weights:1", "uct:20"),
        ("backgammon", "weights:1", "random"),
        ("blob", "pimc:2", "rule"),
        ("beasty_bar", "weights:1", "pimc:2"),
    ],
)
def test_a_split_match_is_the_whole_one_game_by_game(name: str, first: str, second: str) -> None:
    spec = MatchSpec(first, second, 13, 4, 2, 7)
    whole, games_ = played(spec, name)
    parts = [played(part, name) for part in split(spec, 5)]
    assert [number for _, some in parts for number in sorted(some)] == list(games_)
    assert {number: actions for _, some in parts for number, actions in some.items()} == games_
    [merged] = put_together([replace(result, worker=f"w{n}:1") for n, (result, _) in enumerate(parts)][::-1])
    assert [getattr(merged, name) for name in FIGURES] == pytest.approx([getattr(whole, name) for name in FIGURES])
    assert sum(merged.workers.values()) == whole.games


def card_parts(count: int, most: int) -> tuple[MatchResult, list[MatchResult]]:
    spec = MatchSpec("a", "b", count, 1, 0, 5)
    rng = random.Random(3)
    chosen: dict[tuple[int, ...], int] = {}

    def either(state: Any) -> int:
        return chosen.setdefault(tuple(state.history()), rng.choice(state.legal_actions()))

    players = Choosing(CARDS, either, "a"), Choosing(CARDS, lambda state: min(state.legal_actions()), "b")
    whole = play_match(spec, CARDS, *players)
    return whole, [play_match(part, CARDS, *players) for part in split(spec, most)]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.integers(8, 25), st.randoms(use_true_random=False))
def test_parts_in_any_order_and_some_twice_are_one_match(count: int, most: int, luck: random.Random) -> None:
    whole, parts = card_parts(count, most)
    came = [*parts, *luck.sample(parts, len(parts) // 2)]
    luck.shuffle(came)
    found = put_together(came if len(parts) > 1 else parts)
    assert len(found) == 1
    assert found[0].spec.games == count
    assert [getattr(found[0], name) for name in FIGURES] == pytest.approx([getattr(whole, name) for name in FIGURES])
    assert found[0].progress == ""


@given(st.integers(1, 5_000), st.integers(20, 400), st.integers(2, 8))
def test_parts_hold_every_game_once_and_none_is_empty_whatever_the_number_of_seats(count: int, most: int, seats: int) -> None:
    parts = split(spec := MatchSpec("a", "b", count, 1, 0, 5), most)
    assert sum(part.games for part in parts) == count
    ranges = [(whole_groups(part.first_game, seats), whole_groups(part.first_game + part.games, seats)) for part in parts]
    assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == whole_groups(count, seats)
    assert all(begin < end for begin, end in ranges)
    assert max(part.games for part in parts) <= most
    assert {whole_of(part) for part in parts} == {spec if len(parts) == 1 else replace(spec, of_games=count)}


def test_small_matches_stay_one_job_and_two_of_their_own_are_two() -> None:
    spec = MatchSpec("a", "b", 40, 1, 0, 5)
    assert split(spec, 40) == [spec]
    result = MatchResult(spec, "a", "b", 20, 0, 20, 1)
    assert len(put_together([result, result])) == 2


def test_a_job_has_the_games_of_its_match_and_grading_has_none() -> None:
    match = MatchSpec("a", "b", 40, 1, 0, 5)
    assert job_of("r", "cpu", match).games == 40
    assert job_of("r", "cpu", GradeSpec(1, 600, 64, 0)).games == 0
    assert job_of("r", "cpu", match).priority < Job("", "r", Kind.SELFPLAY, "cpu").priority, "before self-play"


def test_only_an_evaluation_job_says_what_it_evaluates() -> None:
    match, grade = MatchSpec("a", "b", 40, 1, 0, 5), GradeSpec(1, 600, 64, 0)
    assert [spec_of(job_of("r", "cpu", spec)) for spec in (match, grade)] == [match, grade]
    job = job_of("r", "cpu", match)
    assert spec_of(replace(job, kind=Kind.SELFPLAY)) is None
    assert spec_of(replace(job, payload=b"what a newer azq asks for")) is None
    assert part_of(job) is None, "a whole match"
    assert [part_of(job_of("r", "cpu", part)) for part in split(match, 25)] == split(match, 25)


def test_in_a_game_for_one_the_two_play_side_by_side() -> None:
    spec = MatchSpec("a", "b", 40, 1, 0, 5)
    assert [opponents(MatchResult(spec, "a", "b", 20, 0, 20, 1, seats=seats)) for seats in (1, 2, 3)] == [1, 1, 2]


def part(first: int, wins: int, losses: int, *, draws: int = 0, sprt: tuple[float, ...] = SPRT) -> MatchResult:
    spec = MatchSpec("a", "b", wins + draws + losses, 1, 0, 5, first, 1000, sprt)
    return MatchResult(spec, "a", "b", wins, draws, losses, first, worker="h:1")


def test_what_is_done_of_a_match_is_told_with_the_bounds_of_its_test() -> None:
    [match] = put_together([part(200, 55, 45), part(0, 50, 50)])
    test = sequential_test(105, 0, 95, *SPRT)
    assert (match.games, match.test) == (200, test)
    assert match.progress == f"200 of 1000, LLR {test.llr:.2f} in [-2.94, 2.94]"
    [match] = put_together([part(200, 55, 45, sprt=()), part(0, 50, 50, sprt=())])
    assert (match.progress, match.test) == ("200 of 1000", None)


def test_a_draw_counts_in_the_test_of_all_parts() -> None:
    [whole] = put_together([part(0, 5, 3, draws=2), part(10, 4, 2, draws=4)])
    assert whole.test is not None
    assert whole.test.llr == pytest.approx(sequential_test(9, 6, 5, *SPRT).llr)


def test_the_error_of_a_gap_is_that_of_both_scores_in_the_same_games() -> None:
    spec = MatchSpec("a", "b", 1, 1, 0, 5, 0, 2)
    scores = [(5.0, 3.0), (9.0, 7.0)]  # the same gap in either part
    parts = [
        MatchResult(replace(spec, first_game=at), "a", "b", 1, 0, 0, 1, seats=1, points=mine, second_points=other)
        for at, (mine, other) in enumerate(scores)
    ]
    [whole] = put_together(parts)
    assert (whole.gap_se, whole.points_se) == (0.0, pytest.approx(2.0))


def test_one_part_stays_whose_it_was_and_one_group_of_games_has_no_error() -> None:
    [alone] = put_together([part(0, 5, 3)])
    assert alone.worker == "h:1"
    spec = MatchSpec("a", "b", 2, 1, 0, 5, 0, 4)
    halves = [MatchResult(replace(spec, first_game=first), "a", "b", 1, 0, 1, 1, points=3.0, points_se=9.0) for first in (0, 2)]
    [both] = put_together([halves[0], replace(halves[1], wins=0, losses=0)])
    assert (both.points, both.points_se) == (3.0, 0.0)


def test_what_comes_after_the_decision_does_not_undo_it() -> None:
    [match] = put_together([part(200, 0, 100), part(100, 75, 25), part(0, 75, 25)])
    assert match.test == sequential_test(75, 0, 25, *SPRT)
    assert match.test is not None
    assert match.test.verdict == "accepted"
    assert match.games == 300
    assert match.progress.endswith(": accepted")


def test_a_part_that_an_engine_ended_is_told_and_the_others_count() -> None:
    broken = failed(part(100, 50, 50).spec, "gtp:x died")
    [match] = put_together([part(200, 10, 90), broken, part(0, 90, 10)])
    assert (match.games, match.wins, match.error) == (200, 100, "gtp:x died")
    [match] = put_together([part(100, 50, 50), broken])
    assert (match.games, match.error) == (100, ""), "the part was played after all"
