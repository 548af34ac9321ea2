"""Games in Python for one player: scores on a declared scale, searched to the best one, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq.errors import GameContractError
from azq.games.check import check
from azq.games.scores import read_scale, score_of, value_of
from azq.notation.units import unit
from azq.search.portable import PortableSearch

FILE = Path(__file__).parents[2] / "games" / "coins.py"
COINS = f"{FILE}:Coins"


@cache
def best(size: int, row: int, column: int) -> int:
    """The most that can be had from a cell on, by exhaustion."""
    here = (7 * row * row + 3 * row * column + 5 * column) % 10
    ways = [(row + 1, column), (row, column + 1)]
    return here + max((best(size, *way) for way in ways if max(way) < size), default=0)


def test_the_score_comes_back_from_the_value() -> None:
    game = games.load(COINS)
    state = game.new_initial_state()
    while not state.is_terminal():
        state.apply_action(state.legal_actions()[0])
    told = int(str(state).rpartition(" ")[2])
    (value,) = state.returns()
    assert value == 2 * told / 99 - 1
    assert (unit(game).name, unit(game).convert(value)) == ("score", pytest.approx(told))
    assert check(game, games=5).sound


@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_a_search_that_counts_by_the_range_it_sees_finds_the_best_way(algorithm: str) -> None:
    """A narrow walk: nearly all scores lie near each other, and priors know nothing."""
    game: Any = games.load(COINS, size=5)
    settings = Settings(algorithm, 200, q_range=0.02, c_scale=0.1, gumbel_scale=0.0, dirichlet_fraction=0.0)
    search: Any = PortableSearch(game, settings.core(), num_slots=1, seed=3, autoplay=False)
    evaluate = HashEvaluator(2, seed=1, value_size=1)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=lambda packed: _knows_nothing(evaluate, packed))
    search.start(0, 1, np.zeros(0, np.uint16))
    while not search.finished_slots():
        driver.run()
        if not search.finished_slots():
            search.play(0, search.result(0).best_action)
    assert unit(game).convert(search.record(0).returns[0]) == pytest.approx(best(5, 0, 0))


def _knows_nothing(evaluate: Any, packed: Any) -> Any:
    logits, values = evaluate(packed)
    return logits * 0, values * 0


WRONG = [
    ("(5, 5)", "lowest score comes first"),
    ("(0,)", "write .lowest, highest."),
    ("(0, float('inf'))", "write .lowest, highest."),
    ("(0, 9, -1)", "a step is not negative"),
    ("'no'", "scores.. gives no scale"),
]


@pytest.mark.parametrize(("scale", "why"), WRONG)
def test_a_scale_that_is_none_is_named(tmp_path: Path, scale: str, why: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(FILE.read_text("utf-8").replace("return 0, 9 * (2 * self.size - 1)", f"return {scale}"), "utf-8")
    with pytest.raises(GameContractError, match=why):
        games.load(f"{file}:Coins")


def test_a_score_beyond_the_scale_is_named(tmp_path: Path) -> None:
    file = tmp_path / "more.py"
    file.write_text(FILE.read_text("utf-8").replace("return 0, 9 * (2 * self.size - 1)", "return 0, 10"), "utf-8")
    state = games.load(f"{file}:Coins").new_initial_state()
    while not state.is_terminal():
        state.apply_action(state.legal_actions()[0])
    with pytest.raises(GameContractError, match=r"the score \d+, scores.. said 0 to 10"):
        state.returns()


def test_scores_of_several_players_are_refused() -> None:
    with pytest.raises(ValueError, match="one player"):
        read_scale((0, 1), 2)


@given(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.sampled_from([0.0, 0.1, 1.0, 50.0])), st.floats(0, 1))
def test_values_and_scores_are_inverse_and_ascend(given_scale: tuple[float, float, float], share: float) -> None:
    low, width, step = given_scale
    scale = (low, low + width, step)
    score = low + share * width
    assert -1 <= value_of(score, scale) <= 1
    assert score_of(value_of(score, scale), scale) == pytest.approx(score, rel=1e-6, abs=1e-6 * width + 1e-6)
    assert value_of(low, scale) <= value_of(score, scale) <= value_of(low + width, scale)
