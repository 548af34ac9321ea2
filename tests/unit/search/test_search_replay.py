"""A game is what its search gives again, whoever made it and whatever happened meanwhile; where not, the reason is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from honest_tabs import TinyNetworks
from numpy.typing import NDArray

from azq import _core
from azq.config import RunSections
from azq.search.recomputation import Outputs
from azq.search.replay import DIFFERS, EQUAL, ROUNDING, RecordedGame, ReplayedPly, replay
from azq.wire.arrays import pack_record, unpack_record

UID = 5


def sections_of(name: str = "connect_four", **search: Any) -> RunSections:
    values = {"run": {"game": name, "seed": 11}, "search": {"num_simulations": 16, **search}, "selfplay": {"random_opening_plies": 2}}
    return RunSections.model_validate(values)


def made(sections: RunSections, *, swap_at: int = 10**9, hand_over_at: int = 10**9, then: int = 0) -> RecordedGame:
    """A game as a worker makes it: new weights after so many steps; another worker, with another budget perhaps, from a ply on."""
    game = _core.load_game(sections.run.game, {})
    empty = RecordedGame(game, sections, UID, {}, sections.search.reuse_subtree)
    search, evaluate = _core.Search(game, empty.config(sections.search.num_simulations), num_slots=1, seed=11), TinyNetworks(game)
    search.start(0, UID, np.zeros(0, np.uint16))
    packed, slots, steps = np.zeros((8, game.packed_size()), np.uint8), np.zeros(8, np.int32), 0
    while leaves := search.collect(packed, slots):
        version = 1 if steps < swap_at else 2
        search.apply(*evaluate(version, packed[:leaves]), version)
        steps += 1
        record = search.record(0)
        if len(record.actions) >= hand_over_at:
            hand_over_at = 10**9
            search = _core.Search(game, empty.config(then or sections.search.num_simulations), num_slots=1, seed=11)
            names = ("actions", "policies", "root_values", "simulations", "weight_versions")
            search.start(0, UID, **{name: getattr(record, name) for name in names})
    arrays = unpack_record(pack_record(search.record(0)), game.num_distinct_actions(), game.value_size())
    return RecordedGame(game, sections, UID, arrays, sections.search.reuse_subtree)


def replayed(recorded: RecordedGame, last: int | None = None) -> list[ReplayedPly]:
    return list(replay(recorded, TinyNetworks(recorded.game), last))


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("tic_tac_toe", {}),
        ("connect_four", {}),
        ("connect_four", {"algorithm": "puct", "leaves_per_step": 3}),
        ("connect_four", {"reuse_subtree": False}),
        ("backgammon", {}),
        ("blob", {}),
    ],
)
def test_a_game_is_repeated_with_the_trees_that_were_kept(name: str, search: dict[str, Any]) -> None:
    recorded = made(sections_of(name, **search))
    found = replayed(recorded)
    assert [each.searched.ply for each in found] == recorded.searched
    assert {(each.verdict, each.reason) for each in found} == {(EQUAL, "")}
    assert [each.searched.ply for each in replayed(recorded, recorded.searched[2])] == recorded.searched[:3]


@pytest.mark.parametrize("swap_at", [7, 55, 90])
def test_the_step_at_which_new_weights_came_is_found(swap_at: int) -> None:
    found = replayed(made(sections_of(), swap_at=swap_at))
    assert {each.verdict for each in found} == {EQUAL}
    assert next(each.reason for each in found if each.reason).startswith("weights changed from 1 to 2 after ")


def test_another_worker_and_another_budget_are_found() -> None:
    found = replayed(made(sections_of(), hand_over_at=8))
    assert [(each.searched.ply, each.verdict) for each in found if each.reason] == [(8, EQUAL)]
    staged = sections_of(schedule=[{"at": 0.5, "num_simulations": 24}])
    found = replayed(made(staged, hand_over_at=8, then=24))
    assert {each.verdict for each in found} == {EQUAL}
    assert [each.reason for each in found if each.reason] == ["24 simulations were ordered, and the tree was empty"]


def test_what_is_not_repeated_says_so_and_spoils_what_follows() -> None:
    recorded = made(sections_of())
    recorded.arrays["root_values"][6] += 0.01
    by_ply = {each.searched.ply: each for each in replayed(recorded)}
    assert by_ply[6].verdict == DIFFERS
    assert "no reason is known" in by_ply[6].reason
    assert by_ply[7].verdict == EQUAL, "the tree was the same, what was written down was not"


def test_rounding_is_no_difference() -> None:
    recorded = made(sections_of())
    exact = TinyNetworks(recorded.game)

    def rounded(version: int, packed: NDArray[np.uint8]) -> Outputs:
        logits, values = exact(version, packed)
        return logits, np.nextafter(values, np.float16(1))

    found = list(replay(recorded, rounded))
    assert found[0].verdict == ROUNDING
    assert "rounded" in found[0].reason
    assert "its tree was kept from ply" in found[1].reason
