"""Plies searched again are those that were searched, whatever else is searched beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from honest_tabs import TinyNetworks, games_of, order_of
from numpy.typing import NDArray

from azq.parts.volunteers.handouts import Returned
from azq.parts.volunteers.plausibility import SearchOrder, check
from azq.search import recomputation as searching
from azq.search.recomputation import ChosenPly, Difference, Outputs, differs, recompute


def plies_of(order: SearchOrder, games: list[Returned]) -> list[ChosenPly]:
    return [ply for game in games for ply in check(order, game).own]


@pytest.mark.parametrize(
    ("name", "search"),
    [
        *((name, {}) for name in ("tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar")),
        ("connect_four", {"algorithm": "puct", "leaves_per_step": 2}),
        ("blob", {"algorithm": "puct"}),
    ],
)
def test_honest_games_are_what_comes_out(name: str, search: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SLOTS", 7)
    order = order_of(name, num_simulations=8, **search)
    evaluate = TinyNetworks(order.game)
    plies = plies_of(order, games_of(order, evaluate, [3, 4], version=2) + games_of(order, evaluate, [5]))
    assert {ply.version for ply in plies} == {2, 3}
    found = recompute(order.game, order.seed, order.config, plies, evaluate)
    assert len(found) == len(plies)
    assert {(each.action, each.simulations, each.policy, each.value) for each in found} == {(False, 0, 0.0, 0.0)}


def test_a_little_noise_of_rounding_is_no_difference() -> None:
    order = order_of("connect_four", num_simulations=32)
    exact, rng = TinyNetworks(order.game), np.random.default_rng(0)

    def rounded(version: int, packed: NDArray[np.uint8]) -> Outputs:
        logits, values = exact(version, packed)
        moved = rng.random(logits.shape) < 3e-3
        return np.where(moved, np.nextafter(logits, np.float16(9)), logits), values

    found = recompute(order.game, order.seed, order.config, plies_of(order, games_of(order, rounded, range(1, 17))), exact)
    assert not any(map(differs, found))
    assert any(each.policy > 0 for each in found)


@pytest.mark.parametrize(
    "difference",
    [Difference(1, 2, True, 0, 0.0, 0.0), Difference(1, 2, False, 1, 0.0, 0.0), Difference(1, 2, False, 0, 0.021, 0.0)],
)
def test_each_figure_tells(difference: Difference) -> None:
    assert differs(difference)
