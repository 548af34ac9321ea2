"""Who makes every search himself, and tells the truth about it, still has no choice among searches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from honest_tabs import TinyNetworks, games_of, order_of, returned, with_arrays
from numpy.typing import NDArray

from azq import _core
from azq.parts.volunteers.handouts import Returned, Terms
from azq.parts.volunteers.plausibility import SearchOrder, check
from azq.parts.volunteers.reputation import EXACT, LEAST_FALSE, Judgement
from azq.parts.volunteers.verifier import Verification
from azq.search.recomputation import differs, recompute
from azq.wire.arrays import arrays_of, pack_record

TERMS = Terms(3, 8)
WAYS = tuple(itertools.starmap(Terms, itertools.product((2, 3), (4, 8))))  # versions that are kept, and budgets that a run allows
GAMES = range(1, 13)


class Chooser:
    """Searches each ply in every way that any run allows, plays what pleases him, and records the way that gave it."""

    def __init__(self, order: SearchOrder, ways: Sequence[Terms]) -> None:
        self._order, self._ways, self._networks = order, ways, TinyNetworks(order.game)
        self.moved: dict[int, int] = {}  # plies of each game that are another move than the ordered search gives
        self.plies = 0

    def play(self, uid: int, pleases: random.Random, astray_at: int = -1) -> Returned:
        """A game, whose moves are the ordered ones wherever no way gives another; at one ply any other."""
        opening = _core.Search(self._order.game, self._order.config(1), num_slots=1, seed=self._order.seed, autoplay=True)
        opening.start(0, uid, np.zeros(0, np.uint16))
        record: Any = opening.record(0)
        self.moved[uid] = 0
        while True:
            found = {way: self._searched(way, uid, record, astray=len(record.actions) == astray_at) for way in self._ways}
            ordered = found[TERMS][0]
            others = [way for way in self._ways if found[way][0] != ordered]
            way = pleases.choice(others) if others else TERMS
            self.plies, self.moved[uid] = self.plies + 1, self.moved[uid] + bool(others)
            record, over = found[way][1:]
            if over:
                return returned(pack_record(record), TERMS)

    def _searched(self, way: Terms, uid: int, so_far: Any, astray: bool) -> tuple[int, Any, bool]:
        search = _core.Search(self._order.game, self._order.config(way.budget), num_slots=1, seed=self._order.seed, autoplay=False)
        arrays: dict[str, NDArray[Any]] = {
            name: getattr(so_far, name) for name in ("actions", "policies", "root_values", "simulations", "weight_versions")
        }
        search.start(0, uid, **arrays)
        packed, slots = np.zeros((1, self._order.game.packed_size()), np.uint8), np.zeros(1, np.int32)
        while search.collect(packed, slots):
            search.apply(*self._networks(way.version, packed), way.version)
        action = int(search.result(0).action)
        search.play(0, next(other for other in search.state(0).legal_actions() if other != action) if astray else action)
        return action, search.record(0), bool(search.finished_slots())


LUCK = 10**12


class Court:
    """A run whose games are handed out with luck that only the gateway knows, and what cheats make of them."""

    def __init__(self, **search: Any) -> None:
        self.order = order_of("connect_four", num_simulations=TERMS.budget, **search)
        self.networks = TinyNetworks(self.order.game)

    def made(self, evaluate: Any = None, luck: int = LUCK, **search: Any) -> list[Returned]:
        changed = replace(self.order, search=self.order.search.model_copy(update=search))
        config = changed.config(changed.search.num_simulations)
        games = games_of(self.order, evaluate or self.networks, GAMES, config=config, luck=luck)
        return [replace(game, luck=game.record.uid + LUCK) for game in games]

    def judged(self, games: Sequence[Returned], share: float = 1.0) -> Judgement:
        return Verification(self.networks, random.Random(0)).judge(self.order, share, games)

    def shown(self, games: Sequence[Returned], *, exact: bool = True) -> float:
        """The share of plies that differ."""
        plies = [ply for game in games for ply in check(self.order, game).own]
        found = recompute(self.order.game, self.order.seed, self.order.config, plies, self.networks)
        return float(np.mean([differs(each, exact=exact) for each in found]))

    def with_one_visit_moved(self) -> list[Returned]:
        """In the first game, at a ply with two visited actions: one visit of the first is the second's."""
        first, *others = self.made()
        policies = arrays_of(first.record, 7, 1, "it")["policies"].copy()
        ply = int(np.flatnonzero((policies > 0).sum(axis=1) > 1)[0])
        one, other = np.flatnonzero(policies[ply])[:2]
        policies[ply, [one, other]] += np.array([-1, 1]) / np.float16(TERMS.budget)
        return [with_arrays(first, policies=policies, support=np.zeros(0, np.uint8)), *others]


def test_every_planted_cheat_differs_and_no_honest_ply_does() -> None:
    court, puct = Court(), Court(algorithm="puct")
    assert (court.shown(court.made()), puct.shown(puct.made())) == (0.0, 0.0)
    uniform = lambda version, packed: tuple(np.zeros_like(part) for part in court.networks(version, packed))  # noqa: E731
    wholly = {
        "another network": court.made(lambda _, packed: court.networks(2, packed)),
        "no network": court.made(uniform),
        "fewer simulations": court.made(num_simulations=TERMS.budget - 1),
        "no noise": court.made(gumbel_scale=0.0),
    }
    shown = {cheat: court.shown(games) for cheat, games in wholly.items()}
    assert min(shown.values()) > LEAST_FALSE, shown
    assert min(court.shown(games, exact=False) for games in wholly.values()) > 0.2, "within the bounds for floats"
    for games in (*wholly.values(), court.made(luck=LUCK + 100)):
        assert court.judged(games, EXACT.share).refused.keys() == set(GAMES)
    astray = Chooser(court.order, (TERMS,)).play(GAMES[0], random.Random(0), astray_at=4)  # searched as ordered before and after
    for cheated in (puct.judged(puct.with_one_visit_moved()), court.judged([astray, *court.made()[1:]])):
        assert (cheated.differed, cheated.fault, cheated.returns) == (1, True, {})


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


def test_a_game_that_took_too_long_is_refused_without_a_fault() -> None:
    order = order_of("connect_four", num_simulations=TERMS.budget)
    game = Chooser(order, (TERMS,)).play(1, random.Random(1))
    found = Verification(TinyNetworks(order.game)).judge(replace(order, versions=(4,)), 1.0, [game])
    assert list(found.refused) == [1]
    assert not found.fault
