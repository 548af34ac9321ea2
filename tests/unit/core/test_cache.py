"""The evaluation cache changes what is asked of the evaluator and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq._core import Game, Search
from azq.errors import ConfigError

SLOTS = 12


class Asked:
    """An evaluator that counts the leaves it is asked for."""

    def __init__(self) -> None:
        self._evaluate = HashEvaluator(7, seed=3)
        self.leaves = 0

    def __call__(self, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.leaves += len(packed)
        return self._evaluate(packed)


def played(game: Game, settings: Settings, entries: int, threads: int = 1) -> tuple[list[bytes], Search, Asked]:
    search = Search(game, settings.core(), num_slots=SLOTS, seed=5, cache_entries=entries, num_threads=threads)
    asked = Asked()
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=asked)
    records = driver.play(range(1, SLOTS + 1))
    return [r.actions.tobytes() + r.policies.tobytes() + r.root_values.tobytes() + r.simulations.tobytes() for r in records], search, asked


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize("entries", [1, 64, 65536])
def test_games_are_the_same_with_and_without(connect_four: Game, algorithm: str, entries: int) -> None:
    settings = Settings(algorithm, 48)
    without, _, all_leaves = played(connect_four, settings, 0)
    cached, search, asked = played(connect_four, settings, entries)
    assert cached == without
    assert search.evaluations == asked.leaves
    assert search.evaluations + search.cache_hits == all_leaves.leaves
    assert played(connect_four, settings, entries, threads=3)[0] == without


def test_a_large_cache_spares_the_evaluator(connect_four: Game) -> None:
    _, search, asked = played(connect_four, Settings("puct", 48), 65536)
    assert search.cache_hits > asked.leaves / 10


def test_another_weight_version_is_asked_anew(connect_four: Game) -> None:
    search = Search(connect_four, Settings("puct", 16).core(), num_slots=1, seed=5, cache_entries=1024, autoplay=False)
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


def test_several_leaves_in_flight_do_without_it(connect_four: Game) -> None:
    settings = Settings("puct", 32, leaves_per_step=3)
    assert played(connect_four, settings, 4096)[0] == played(connect_four, settings, 0)[0]


def test_a_size_that_is_no_power_of_two_is_refused(connect_four: Game) -> None:
    with pytest.raises(ConfigError, match="cache_entries"):
        Search(connect_four, Settings("puct", 16).core(), num_slots=1, seed=5, cache_entries=1000)
