"""The evaluation cache and merged leaves change what is asked of the evaluator and nothing else."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator
from waiting import PATIENCE_S

from azq import games
from azq._core import EvaluationCache, Game, Search
from azq.errors import ConfigError

SLOTS = 12


class Asked:
    """An evaluator that counts the leaves it is asked for, and how often one request holds the same leaf twice."""

    def __init__(self, num_actions: int) -> None:
        self._evaluate = HashEvaluator(num_actions, seed=3)
        self.leaves = self.twice = 0

    def __call__(self, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.leaves += len(packed)
        self.twice += len(packed) - len({row.tobytes() for row in packed})
        return self._evaluate(packed)


def played(
    game: Game, settings: Settings, cache: EvaluationCache | None, threads: int = 1, first_uid: int = 1
) -> tuple[list[bytes], Search, Asked]:
    search = Search(game, settings.core(), num_slots=SLOTS, seed=5, cache=cache, num_threads=threads)
    asked = Asked(game.num_distinct_actions())
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=asked)
    records = driver.play(range(first_uid, first_uid + SLOTS))
    return [r.actions.tobytes() + r.policies.tobytes() + r.root_values.tobytes() + r.simulations.tobytes() for r in records], search, asked


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize("entries", [1, 64, 65536])
@pytest.mark.parametrize(("name", "params", "simulations"), [("connect_four", {}, 48), ("othello", {"size": 6}, 16)])
def test_games_are_the_same_with_and_without(name: str, params: dict[str, int], simulations: int, algorithm: str, entries: int) -> None:
    game, settings = games.load(name, **params), Settings(algorithm, simulations)
    without, _, all_leaves = played(game, settings, None)
    cached, search, asked = played(game, settings, EvaluationCache(game, entries))
    assert cached == without
    assert asked.twice == 0 < all_leaves.twice
    assert search.evaluations == asked.leaves
    assert search.evaluations + search.cache_hits + search.merged_leaves == all_leaves.leaves == search.cache_lookups
    for threads in (2, 3, 4) if entries == 64 else ():
        assert played(game, settings, EvaluationCache(game, entries), threads)[0] == without


def test_a_game_of_hidden_hands_is_the_same_with_and_without() -> None:
    game, settings = games.load("blob", players=3, cards=2), Settings("gumbel", 12)

    def records(cache: EvaluationCache | None) -> tuple[list[bytes], Search]:
        search = Search(game, settings.core(), num_slots=SLOTS, seed=5, cache=cache)
        evaluate = HashEvaluator(game.num_distinct_actions(), value_size=game.value_size())
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
        return [r.actions.tobytes() + r.policies.tobytes() for r in driver.play(range(SLOTS))], search

    cached, search = records(EvaluationCache(game, 4096))
    assert cached == records(None)[0]
    assert search.cache_hits > 0


def test_a_large_cache_spares_the_evaluator(connect_four: Game) -> None:
    _, search, asked = played(connect_four, Settings("puct", 48), EvaluationCache(connect_four, 65536))
    assert search.cache_hits > asked.leaves / 10


def test_what_one_search_learned_the_other_knows(connect_four: Game) -> None:
    cache, settings = EvaluationCache(connect_four, 65536), Settings("puct", 32)
    alone, _, asked_alone = played(connect_four, settings, EvaluationCache(connect_four, 65536), first_uid=100)
    played(connect_four, settings, cache)
    second, _, asked = played(connect_four, settings, cache, first_uid=100)
    assert second == alone
    assert 0 < asked.leaves < asked_alone.leaves
    cache.clear()
    assert played(connect_four, settings, cache, first_uid=100)[2].leaves == asked_alone.leaves


def test_searches_in_several_threads_may_share_it(connect_four: Game) -> None:
    """Half of the places are written again and again, so that torn entries would be seen."""
    cache, settings = EvaluationCache(connect_four, 256), Settings("puct", 32)
    expected = {uid: played(connect_four, settings, None, first_uid=uid)[0] for uid in (1, 101, 201)}
    found: dict[int, list[bytes]] = {}

    def play(uid: int) -> None:
        found[uid] = played(connect_four, settings, cache, threads=2, first_uid=uid)[0]

    players = [threading.Thread(target=play, args=(uid,)) for uid in expected]
    for player in players:
        player.start()
    for player in players:
        player.join(PATIENCE_S)
    assert found == expected


def test_another_weight_version_is_asked_anew(connect_four: Game) -> None:
    cache = EvaluationCache(connect_four, 1024)
    search = Search(connect_four, Settings("puct", 16).core(), num_slots=1, seed=5, cache=cache, autoplay=False)
    packed, slots = np.zeros((1, connect_four.packed_size()), np.uint8), np.zeros(1, np.int32)

    def asked(actions: list[int], version: int) -> int:
        before = search.evaluations
        search.start(0, 1, np.array(actions, np.uint16))
        while search.collect(packed, slots):
            search.apply(*HashEvaluator(7, seed=3)(packed), weight_version=version)
        search.clear(0)
        return search.evaluations - before

    first = asked([], 1)
    assert first > 10
    assert asked([], 1) == 0
    assert asked([0, 1, 2, 3, 4], 2) > 10  # the search hears of the new version here
    assert asked([], 2) == first


def test_several_leaves_in_flight_are_merged_but_not_looked_up(connect_four: Game) -> None:
    settings = Settings("puct", 32, leaves_per_step=3)
    cached, search, asked = played(connect_four, settings, EvaluationCache(connect_four, 4096))
    assert cached == played(connect_four, settings, None)[0]
    assert search.cache_lookups == asked.twice == 0 < search.merged_leaves


def test_a_size_that_is_no_power_of_two_is_refused(connect_four: Game) -> None:
    for entries in (0, 1000):
        with pytest.raises(ConfigError, match="power of two"):
            EvaluationCache(connect_four, entries)


def test_the_cache_of_another_game_is_refused(connect_four: Game, tic_tac_toe: Game) -> None:
    with pytest.raises(ConfigError, match="another game"):
        Search(connect_four, Settings("puct", 16).core(), num_slots=1, seed=5, cache=EvaluationCache(tic_tac_toe, 16))
