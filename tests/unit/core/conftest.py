"""Games and evaluators shared by the tests of the core."""

from __future__ import annotations

import pytest
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Game


@pytest.fixture
def connect_four() -> Game:
    return games.load("connect_four")


@pytest.fixture
def tic_tac_toe() -> Game:
    return games.load("tic_tac_toe")


@pytest.fixture
def evaluate() -> HashEvaluator:
    """For connect four."""
    return HashEvaluator(7)
