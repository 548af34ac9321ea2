"""A search that knows nothing but the rules still plays: it sees wins and threats that random players walk into."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.config import Settings
from reference.driver import Driver

from azq._core import Game, Search


def know_nothing(packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    return np.zeros((len(packed), 7), np.float16), np.zeros((len(packed), 1), np.float16)


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_it_beats_random_players(algorithm: str, connect_four: Game) -> None:
    rng = random.Random(1)
    settings = Settings(algorithm, 150, gumbel_scale=0.0, dirichlet_fraction=0.0)
    search = Search(connect_four, settings.core(), num_slots=1, seed=1, autoplay=False)
    driver = Driver(search, packed_size=connect_four.packed_size(), leaves_per_step=1, evaluate=know_nothing)
    score = 0.0
    for number in range(30):
        search.start(0, number, np.array([rng.randrange(7)], np.uint16))
        while not search.finished_slots():
            state = search.state(0)
            if state.current_player() == number % 2:
                driver.run()
                search.play(0, search.result(0).best_action)
            else:
                search.play(0, rng.choice(state.legal_actions()))
        score += search.state(0).returns()[number % 2]
    assert score > 25
