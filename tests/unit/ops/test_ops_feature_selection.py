"""The example that chooses features: what subsets are worth, what the search finds that greedy misses, and steps that fail."""

from __future__ import annotations

import math
from typing import Any

import feature_selection as example
import numpy as np
import pytest
import torch
from memory_broker import MemoryBus

from azq.config import RankSettings
from azq.parts import ranks
from azq.parts.ranks.plain import RUN

BUDGET = 310  # 2 % of 15,504


def training_of(evaluations: Any, trainer: Any) -> ranks.PlainTraining:
    return ranks.PlainTraining(trainer, evaluations.bus, ranks.RankPlace(0, 1), example.ROWS, RUN, RankSettings())


def best_found(seed: int, budget: int, fail_step: int | None = None) -> tuple[float, float, int]:
    """The best that the search found, the best there is, and how many subsets were evaluated."""
    worth = example.planted(seed)
    evaluations = example.Evaluations(MemoryBus(), worth.features)
    trainer = example.trainer_of(evaluations, seed, fail_step)
    with training_of(evaluations, trainer) as training:
        known = example.searched(worth, example.CHOOSE, budget, seed, evaluations, training, trainer)
    return max(known.values()), example.exhaustive(worth, example.CHOOSE), len(known)


def test_a_subset_is_worth_what_regressions_on_the_other_folds_explain():
    worth = example.planted(3, 8)
    targets = (worth.targets - worth.targets.mean()) / worth.targets.std()
    rows = np.column_stack([np.ones(len(targets)), worth.inputs])
    for chosen, found in worth.each([(0, 3), (2, 7)]).items():
        table, errors = rows[:, [0, *(feature + 1 for feature in chosen)]], 0.0
        for first in range(example.FOLDS):
            held = np.arange(len(table)) % example.FOLDS == first
            weights = np.linalg.lstsq(table[~held], targets[~held], rcond=None)[0]
            errors += float(((table[held] @ weights - targets[held]) ** 2).sum())
        assert found == pytest.approx(1 - errors / float((targets**2).sum()), abs=1e-6)


def test_the_search_finds_the_best_subset_while_a_step_fails(capsys):
    found, best, evaluated = best_found(seed=5, budget=120, fail_step=230)
    assert evaluated == 120
    assert found == best
    assert capsys.readouterr().err.count(example.FAILED) == 1


@pytest.mark.release
@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_of_20_choose_5_with_two_in_a_hundred_evaluated(seed):
    assert 0.02 * math.comb(example.FEATURES, example.CHOOSE) >= BUDGET
    found, best, evaluated = best_found(seed, BUDGET)
    assert (found, evaluated) == (best, BUDGET)


def test_a_failed_step_leaves_the_metamodel_as_it_was_and_the_next_goes_on(capsys):
    worth = example.planted(1)
    evaluations = example.Evaluations(MemoryBus(), worth.features)
    drawn = example.at_random(np.random.default_rng(1), worth, example.CHOOSE, 30, {})
    trainer = example.trainer_of(evaluations, 1, fail_step=7)
    evaluations.add(worth.each(drawn), trainer.step)
    with training_of(evaluations, trainer) as training:
        example.train(training, trainer, 5)
        before = trainer.snapshot()
        example.train(training, trainer, 5)  # two of them are taken before the one that fails
        assert trainer.step == 5
        assert all(torch.equal(tensor, before[0][name]) for name, tensor in trainer.tensors().items())
        assert example.FAILED in capsys.readouterr().err
        example.train(training, trainer, 5)
    assert trainer.step == 10
    assert example.FAILED not in capsys.readouterr().err


def test_ranks_draw_the_same_batch_of_what_was_known_at_its_step():
    bus = MemoryBus()
    first, other = example.Evaluations(bus, 6), example.Evaluations(bus, 6)
    first.add({(0, 1): 0.1, (2, 3): 0.4}, 0)
    early = first.batch(3, slice(0, 9))
    first.add({(4, 5): 0.9}, 4)
    for mine, theirs, before in zip(first.batch(3, slice(0, 9)), other.batch(3, slice(0, 9)), early, strict=True):
        assert torch.equal(mine, theirs)
        assert torch.equal(mine, before)
    assert other.batch(4, slice(0, 64))[0][:, 4].any()
    assert not other.batch(3, slice(0, 64))[0][:, 4].any()
