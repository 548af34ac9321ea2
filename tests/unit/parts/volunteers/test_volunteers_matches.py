"""A match that tabs play is dealt as the arena deals, and who plays it honestly brings back its one result."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from honest_tabs import TinyNetworks
from hypothesis import given
from hypothesis import strategies as st
from match_tabs import play_match
from numpy.typing import NDArray

from azq import games
from azq.arena import match as arena
from azq.config import RunSections
from azq.errors import ConfigError, WireError
from azq.notation.units import unit
from azq.parts.volunteers.handouts import Returned
from azq.parts.volunteers.matches import TabMatch, deal_match, versions_named
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.reputation import Judgement
from azq.parts.volunteers.verifier import Verification
from azq.search.recomputation import Outputs
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchSpec, SampleEvent
from azq.wire.tabs import GROUP_UIDS, MATCH_UIDS, ModelUpdate, TabGame, Uid, is_match, luck_of

NAMES = ("tic_tac_toe", "connect_four", "othello", "backgammon", "blob", "beasty_bar")
VERSIONS = (3, 2)


def job_of(spec: Any, number: int = 12) -> Job:
    return Job(f"r:{number}", "r", Kind.EVAL, "browser", payload=encode(spec))


def match_of(name: str, *, number: int = 12, count: int = 4, opening: int = 2, **search: Any) -> TabMatch:
    sections = RunSections.model_validate({"run": {"game": name, "seed": 11}, "search": {"num_simulations": 99} | search})
    spec = MatchSpec("weights:3", "weights:2", count, 8, opening, 77)
    return deal_match(job_of(spec, number), sections, games.load(name), 9)


def networks(name: str) -> tuple[ModelUpdate, ...]:
    return tuple(ModelUpdate("r", name, {}, version, "", 0, b"", b"", b"", 0.0) for version in VERSIONS)


def played(match: TabMatch, evaluate: Any, uids: Sequence[int] | None = None, **lies: Any) -> list[TabGame]:
    """The games of a match as one tab plays them."""
    handed = [(record, b"") for record in match.records if uids is None or record.uid in uids]
    told = match.message("r", networks(match.game.name), handed)
    return play_match(msgspec.structs.replace(told, search=told.search | lies), evaluate)


def judged(match: TabMatch, brought: Sequence[TabGame], share: float = 1.0) -> Judgement:
    handed = {record.uid: record for record in match.records}
    returned = [Returned(game.record, handed[game.uid]) for game in brought]
    order = SearchOrder.of_match(match.game, match.search, match.order)
    return Verification(TinyNetworks(match.game), random.Random(1)).judge(order, share, returned)


def events_of(brought: Sequence[TabGame]) -> list[SampleEvent]:
    return [SampleEvent(game.record, (), "browser:ann", 0) for game in brought]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_what_an_honest_tab_plays_is_what_comes_out(name: str, algorithm: str) -> None:
    match = match_of(name, algorithm=algorithm)
    brought = played(match, TinyNetworks(match.game))
    verdict = judged(match, brought)
    assert (verdict.refused, verdict.differed, verdict.recomputed) == ({}, 0, verdict.plies)
    assert verdict.returns.keys() == match.games.keys()
    result = match.result(events_of(brought))
    assert (result.first, result.second, result.seats) == ("weights:3", "weights:2", match.game.num_players())
    assert result.games == len(match.games)
    returns = [verdict.returns[uid][uid % GROUP_UIDS] for uid in sorted(match.games)]
    assert result.points == pytest.approx(unit(match.game).scale * sum(returns) / len(returns))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_match_whoever_plays_which_game_in_which_company(name: str) -> None:
    match = match_of(name)
    evaluate = TinyNetworks(match.game)
    together = {game.uid: game for game in played(match, evaluate)}
    assert {uid: played(match, evaluate, [uid])[0] for uid in match.games} == together
    assert match.result(events_of(list(together.values()))[::-1]).points == match.result(events_of(list(together.values()))).points


@pytest.mark.parametrize("name", ["connect_four", "blob", "backgammon"])
def test_groups_share_opening_and_luck_and_the_first_player_has_each_seat_once(name: str) -> None:
    match = match_of(name, count=6)
    seats = match.game.num_players()
    dealt = arena.deal(match.game, match.spec)
    assert [one.history for one in match.games.values()] == [one.history for one in dealt]
    groups: dict[int, list[int]] = {}
    for uid, one in match.games.items():
        assert uid % GROUP_UIDS == one.first_seat
        groups.setdefault(luck_of(uid), []).append(uid)
    assert all([uid % GROUP_UIDS for uid in group] == list(range(seats)) for group in groups.values())
    assert len(groups) == -(-6 // seats)
    if match.game.is_chance():
        alike = lambda version, packed: TinyNetworks(match.game)(1, packed)  # noqa: E731
        brought = {game.uid: game.actions for game in played(match, alike)}
        assert all(len({brought[uid] for uid in group}) == 1 for group in groups.values()), "equal players, equal luck: equal games"


@given(st.integers(0, 2**40), st.integers(0, 2**20 - 1), st.integers(0, 5))
def test_numbers_fit_into_messages_and_are_no_self_play_games(number: int, group: int, seat: int) -> None:
    match = match_of("tic_tac_toe", number=number)
    assert all(is_match(uid) and msgspec.convert(uid, Uid) for uid in match.games)
    assert len(match.games) == 4
    base = MATCH_UIDS + group * GROUP_UIDS
    assert luck_of(base + seat) == base
    assert luck_of(group + 1) == group + 1


LIES: dict[str, tuple[str, Any]] = {
    "the same network for both": ("plies are not what", lambda match, good: played(match, lambda _, packed: good(3, packed))),
    "the players swapped": ("plies are not what", lambda match, good: played(match, lambda version, packed: good(5 - version, packed))),
    "fewer simulations": ("plies are not what", lambda match, good: played(match, good, num_simulations=4)),
    "noise": ("plies are not what", lambda match, good: played(match, good, gumbel_scale=1.0)),
    "another opening": ("does not go on from", lambda match, good: [moved(game) for game in played(match, good)]),
    "cut short": ("is not over", lambda match, good: [cut(game) for game in played(match, good)]),
}


def moved(game: TabGame) -> TabGame:
    return msgspec.structs.replace(game, actions=bytes([(game.actions[0] + 1) % 7]) + game.actions[1:])


def cut(game: TabGame) -> TabGame:
    plies = len(game.actions) // 2 - 1
    arrays = ("actions", "policies", "root_values", "simulations", "weight_versions")
    return msgspec.structs.replace(
        game, **{name: getattr(game, name)[: len(getattr(game, name)) // (plies + 1) * plies] for name in arrays}
    )


@pytest.mark.parametrize("lie", LIES)
def test_no_false_game_counts(lie: str) -> None:
    reason, made = LIES[lie]
    match = match_of("connect_four")
    verdict = judged(match, made(match, TinyNetworks(match.game)))
    assert not verdict.returns
    assert all(reason in said for said in verdict.refused.values())


def test_what_a_tab_says_of_versions_is_not_believed() -> None:
    match = match_of("connect_four")
    brought = [
        msgspec.structs.replace(game, weight_versions=game.weight_versions[:8] + b"\7\0\0\0" * (len(game.weight_versions) // 4 - 2))
        for game in played(match, TinyNetworks(match.game))
    ]
    assert not judged(match, brought).refused


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (MatchSpec("weights:1", "uct:100", 2, 8, 0, 1), ConfigError),
        (MatchSpec("solver", "weights:1", 2, 8, 0, 1), ConfigError),
        (MatchSpec("weights:1", "weights:2", 2, 8, 60, 1), ConfigError),
        (GradeSpec(1, 10, 8, 1), WireError),
    ],
)
def test_what_tabs_cannot_play_is_refused(spec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        deal_match(job_of(spec), RunSections(), games.load("tic_tac_toe"), 4)


def test_latest_is_the_newest_and_versions_are_known_before_it_begins() -> None:
    job = job_of(MatchSpec("latest", "weights:2", 2, 8, 0, 1))
    assert deal_match(job, RunSections(), games.load("tic_tac_toe"), 4).order.versions == (4, 2)
    assert versions_named(job) == [2]
    assert versions_named(job_of(GradeSpec(1, 10, 8, 1))) == []


def test_the_arenas_player_and_a_tab_choose_alike() -> None:
    """A tab's search plays on by itself, the arena's asks for the best action of each position."""
    from azq.arena.searcher import Searcher
    from azq.search.evaluator import Evaluation

    class Local:
        def __init__(self, evaluate: Any) -> None:
            self._evaluate, self._asked = evaluate, np.zeros((0, 0), np.uint8)

        def submit(self, packed: NDArray[np.uint8], *, weight_version: int = 0) -> int:
            self._asked = packed.copy()
            return 1

        def result(self, handle: int, *, timeout_s: float) -> Evaluation:
            outputs: Outputs = self._evaluate(3, self._asked)
            return Evaluation(*outputs, 3)

    for algorithm in ("gumbel", "puct"):
        match = match_of("connect_four", algorithm=algorithm)
        evaluate = TinyNetworks(match.game)
        searcher = Searcher(match.game, Local(evaluate), match.search, 8)  # type: ignore[arg-type]
        for game in played(match, lambda _, packed, good=evaluate: good(3, packed)):
            actions = np.frombuffer(game.actions, "<u2").tolist()
            chosen = [result.best_action for result in searcher.results([actions[:ply] for ply in range(2, len(actions))])]
            assert chosen == actions[2:]
