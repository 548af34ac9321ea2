"""Subsets of a table's columns: what they are worth, and the plain ways to choose one, which `feature_selection.py` is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError

FOLDS = 5
MOST_SUBSETS = 200_000  # of which all are evaluated, so that the best is known

Subset = tuple[int, ...]


class Worth:
    """What subsets of a table's columns are worth: R^2 of linear regressions, each row predicted from the folds that it is not of."""

    def __init__(self, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        inputs = (inputs - inputs.mean(0)) / np.where(inputs.std(0) > 0, inputs.std(0), 1.0)
        table = np.column_stack([np.ones(len(inputs)), inputs, (targets - targets.mean()) / targets.std()])
        self.features, self.inputs, self.targets = inputs.shape[1], inputs, targets
        self._folds = [fold.T @ fold for fold in (table[first::FOLDS] for first in range(FOLDS))]

    def of(self, subsets: NDArray[np.int64]) -> NDArray[np.float64]:
        """R^2 of subsets (R, K)."""
        columns = np.column_stack([np.zeros(len(subsets), np.int64), subsets + 1])
        rows, across = columns[:, :, None], columns[:, None, :]
        whole, errors, spread = sum(self._folds), 0.0, 0.0
        for fold in self._folds:
            others = whole - fold
            weights = np.linalg.solve(others[rows, across] + 1e-9 * np.eye(columns.shape[1]), others[columns, -1][:, :, None])[:, :, 0]
            fitted = np.einsum("ri,rij,rj->r", weights, fold[rows, across], weights)
            errors = errors + fold[-1, -1] - 2 * (weights * fold[columns, -1]).sum(1) + fitted
            spread = spread + fold[-1, -1]
        return np.asarray(1 - errors / spread)

    def each(self, subsets: Iterable[Subset]) -> dict[Subset, float]:
        """The worth of subsets of one size, their features in order."""
        keys = [tuple(sorted(subset)) for subset in subsets]
        return dict(zip(keys, self.of(np.array(keys)).tolist(), strict=True)) if keys else {}


def planted(seed: int, features: int, rows: int = 600) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two pairs of features that tell nothing alone, since a stir that is no target's hides in both; one that does; copies of the target
    with noise, which tell most alone and little together; the rest is noise. In random order."""
    rng = np.random.default_rng(seed)
    causes, stirs = rng.normal(size=(rows, 3)), 3 * rng.normal(size=(rows, 2))
    target = causes @ [1.0, 1.0, 0.7] + 0.3 * rng.normal(size=rows)
    hidden = [causes[:, 0] + stirs[:, 0], stirs[:, 0], causes[:, 1] + stirs[:, 1], stirs[:, 1], causes[:, 2]]
    decoys = [target + 3 * rng.normal(size=rows) for _ in range(min(5, features - len(hidden)))]
    columns = np.column_stack([*hidden, *decoys, rng.normal(size=(rows, features - len(hidden) - len(decoys)))])
    return columns[:, rng.permutation(features)], target


def best_of(known: dict[Subset, float], choose: int) -> Subset:
    return max((subset for subset in known if len(subset) == choose), key=known.__getitem__)


def at_random(rng: np.random.Generator, worth: Worth, choose: int, number: int, known: dict[Subset, float]) -> list[Subset]:
    """So many subsets that are not known."""
    found: dict[Subset, None] = {}
    while len(found) < number:
        subset = tuple(sorted(rng.choice(worth.features, choose, replace=False).tolist()))
        if subset not in known:
            found[subset] = None
    return list(found)


def greedy(worth: Worth, choose: int) -> dict[Subset, float]:
    """The feature that adds most, one after the other; smaller subsets on the way count as evaluations too."""
    known: dict[Subset, float] = {}
    chosen: Subset = ()
    while len(chosen) < choose:
        found = worth.each((*chosen, feature) for feature in range(worth.features) if feature not in chosen)
        chosen = max(found, key=found.__getitem__)
        known |= found
    return known


def exchanging(worth: Worth, choose: int, budget: int, rng: np.random.Generator) -> dict[Subset, float]:
    """From what greedy finds, the best exchange of one feature while one is better; then the same from subsets at random."""
    known = greedy(worth, choose)
    now = best_of(known, choose)
    while len(known) < budget:
        others = [feature for feature in range(worth.features) if feature not in now]
        near = {tuple(sorted({*now, new} - {old})) for old in now for new in others}
        known |= worth.each(sorted(near - known.keys())[: budget - len(known)])
        better = max(near & known.keys(), key=known.__getitem__)
        if known[better] > known[now]:
            now = better
        elif len(known) < budget:
            now = at_random(rng, worth, choose, 1, known)[0]
            known |= worth.each([now])
    return known


def telling_most(worth: Worth, choose: int) -> dict[Subset, float]:
    """The features that each alone tell most of the target: mutual information of eight bins of each."""

    def binned(column: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(np.quantile(column, np.arange(1, 8) / 8), column)

    def information(column: NDArray[Any]) -> float:
        joint = np.histogram2d(binned(column), binned(worth.targets), bins=8, range=[[0, 8]] * 2)[0] / len(column)
        apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        return float((joint[joint > 0] * np.log(joint[joint > 0] / apart[joint > 0])).sum())

    chosen = tuple(sorted(np.argsort([-information(column) for column in worth.inputs.T])[:choose].tolist()))
    return worth.each([chosen])


@dataclass(frozen=True)
class Find:
    """What a method found."""

    method: str
    evaluations: int
    best: float
    subset: Subset
    at: int  # how many evaluations it took to that
    share: float | None  # of the known best's worth
    found: bool | None  # whether it is the known best; None: that is not known


def outcome(method: str, choose: int, known: dict[Subset, float], best: float | None) -> Find:
    subset = best_of(known, choose)
    value, at = known[subset], 1 + list(known).index(subset)
    return Find(method, len(known), value, subset, at, value / best if best else None, value >= best - 1e-9 if best is not None else None)


def exhaustive(worth: Worth, choose: int) -> float | None:
    """The best there is, where so few can be."""
    if math.comb(worth.features, choose) > MOST_SUBSETS:
        return None
    subsets = combinations(range(worth.features), choose)
    parts = iter(lambda: list(islice(subsets, 10_000)), [])
    return max(float(worth.of(np.array(part)).max()) for part in parts)


def data_of(name: str, features: int, seed: int) -> Worth:
    if name == "planted":
        if 0 < features < 5:
            raise ConfigError(f"--features {features}: planted data has at least 5")
        return Worth(*planted(seed, features or 20))
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError:
        raise ConfigError(f"--data {name} needs scikit-learn: pip install scikit-learn, or leave it out for data made here") from None
    try:
        load = getattr(datasets, f"load_{name}")
        inputs, targets = load(return_X_y=True)
        inputs, targets = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"--data {name}: scikit-learn has no such table; diabetes, wine and breast_cancer are some") from None
    return Worth(inputs[:, : features or None], targets)
