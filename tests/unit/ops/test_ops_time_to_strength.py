"""`ops/bench/time_to_strength.py`: which versions of a run it grades, and its figures as pure functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from azq.config import load
from azq.presets import preset

SCRIPTS = Path(__file__).parents[3] / "ops" / "bench"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("time_to_strength")
    finally:
        sys.path.remove(str(SCRIPTS))


class FakeRun:
    """Stands for an `azq.Local` that publishes a version between two looks and ends after the last."""

    game = "tic_tac_toe"

    def __init__(self, folder: Path, versions: int) -> None:
        self.folder = folder
        self._left = versions
        self._weights = folder / "strength" / "weights"
        self._weights.mkdir(parents=True)
        self.statuses(0.0)

    @property
    def alive(self) -> bool:
        return self._left > 0

    def statuses(self, within_s: float) -> list[Any]:
        (self._weights / f"{len(list(self._weights.iterdir())) + 1}.safetensors").touch()
        self._left -= 1
        return []


@pytest.fixture
def graded(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The versions that are graded of so many, each with 1 / version of errors."""

    def grade(game: str, folder: Path, weights: Path, exam: object, begun: float) -> dict[str, Any]:
        version = int(weights.stem)
        return {"seconds": 1.0 * version, "version": version, "error_share": 1 / version, "low": 0.0, "high": 1.0}

    monkeypatch.setattr(script, "grade_weights", grade)
    monkeypatch.setattr(script, "weight_version", lambda weights: int(weights.stem))

    def versions(published: int, target: float) -> list[int]:
        exam = script.Exam(positions=(), num_simulations=1, target=target, every_s=0.0)
        return [row["version"] for row in script.curve(FakeRun(tmp_path, published), exam, 0.0)]

    return versions


def test_a_run_is_followed_to_the_target(graded: Any) -> None:
    assert graded(100, 0.25) == [2, 3, 4]


def test_the_last_version_of_a_run_that_ends_before_is_graded_and_the_first_is_not(graded: Any) -> None:
    assert graded(5, 0.0) == [2, 3, 4, 5]


def test_the_recipe_of_the_repository_fits_its_preset() -> None:
    (recipe,) = (SCRIPTS / "recipes").glob("*.toml")
    load(recipe, (), preset(recipe.stem))
