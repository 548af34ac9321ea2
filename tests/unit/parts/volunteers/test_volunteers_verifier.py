"""Who makes every search himself, and tells the truth about it, still has no choice among searches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from honest_tabs import TinyNetworks, order_of, returned
from numpy.typing import NDArray

from azq import _core
from azq.parts.volunteers.handouts import Returned, Terms
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.reputation import CHECKS
from azq.parts.volunteers.verifier import Verification
from azq.wire.arrays import pack_record

TERMS = Terms(3, 8)
WAYS = tuple(itertools.starmap(Terms, itertools.product((2, 3), (4, 8))))  # versions that are kept, and budgets that a run allows
GAMES = range(1, 13)


class Chooser:
    """Searches each ply in every way that any run allows, plays what pleases him, and records the way that gave it."""

    def __init__(self, order: SearchOrder, ways: Sequence[Terms]) -> None:
        self._order, self._ways, self._networks = order, ways, TinyNetworks(order.game)
        self.moved: dict[int, int] = {}  # plies of each game that are another move than the ordered search gives
        self.plies = 0

    def play(self, uid: int, pleases: random.Random) -> Returned:
        """A game, whose moves are the ordered ones wherever no way gives another."""
        opening = _core.Search(self._order.game, self._order.config(1), num_slots=1, seed=self._order.seed, autoplay=True)
        opening.start(0, uid, np.zeros(0, np.uint16))
        record: Any = opening.record(0)
        self.moved[uid] = 0
        while True:
            found = {way: self._searched(way, uid, record) for way in self._ways}
            ordered = found[TERMS][0]
            others = [way for way in self._ways if found[way][0] != ordered]
            way = pleases.choice(others) if others else TERMS
            self.plies, self.moved[uid] = self.plies + 1, self.moved[uid] + bool(others)
            record, over = found[way][1:]
            if over:
                return returned(pack_record(record), terms=TERMS)

    def _searched(self, way: Terms, uid: int, so_far: Any) -> tuple[int, Any, bool]:
        search = _core.Search(self._order.game, self._order.config(way.budget), num_slots=1, seed=self._order.seed, autoplay=False)
        arrays: dict[str, NDArray[Any]] = {
            name: getattr(so_far, name) for name in ("actions", "policies", "root_values", "simulations", "weight_versions")
        }
        search.start(0, uid, **arrays)
        packed, slots = np.zeros((1, self._order.game.packed_size()), np.uint8), np.zeros(1, np.int32)
        while search.collect(packed, slots):
            search.apply(*self._networks(way.version, packed), way.version)
        action = int(search.result(0).action)
        search.play(0, action)
        return action, search.record(0), bool(search.finished_slots())


def accepted_share(ways: Sequence[Terms]) -> tuple[float, float]:
    """Share of the plies that a chooser moves, in all of his games and in those of them that count with every ply searched again."""
    order = order_of("connect_four", num_simulations=TERMS.budget)
    chooser = Chooser(order, ways)
    games = [chooser.play(uid, random.Random(uid)) for uid in GAMES]
    judge = Verification(TinyNetworks(order.game), random.Random(0))
    counted = [uid for each in games for uid in judge.judge(order, 1.0, [each]).returns]
    return sum(chooser.moved.values()) / chooser.plies, sum(map(chooser.moved.__getitem__, counted)) / chooser.plies


def test_who_searches_in_every_way_moves_next_to_no_ply() -> None:
    tried, counted = accepted_share(WAYS)
    assert tried > 0.2, "there is much to choose from"
    assert counted <= 0.02


def test_who_searches_as_ordered_is_believed() -> None:
    order = order_of("connect_four", num_simulations=TERMS.budget)
    chooser = Chooser(order, (TERMS,))
    games = [chooser.play(uid, random.Random(uid)) for uid in GAMES]
    found = Verification(TinyNetworks(order.game), random.Random(0)).judge(order, 1.0, games)
    assert (found.refused, found.differed) == ({}, 0)
    assert found.recomputed == chooser.plies > CHECKS


def test_a_game_that_took_too_long_is_refused_without_a_fault() -> None:
    order = order_of("connect_four", num_simulations=TERMS.budget)
    game = Chooser(order, (TERMS,)).play(1, random.Random(1))
    found = Verification(TinyNetworks(order.game)).judge(replace(order, versions=(4,)), 1.0, [game])
    assert list(found.refused) == [1]
    assert not found.fault
