"""Chooses 5 of 20 features as a game for one player: `python ops/examples/feature_selection.py [--seed S] [--ranks 2] [--fail-step N]`.

A move chooses a feature; the game ends when all are chosen. What they are worth, R^2 of a linear regression under cross-validation, is
taken to be dear: a metamodel, trained online from the search's own evaluations, predicts it, and azq's search plays on what it predicts.
Each of its members, which see the evaluations weighted at random, has a game of its own (Thompson sampling); the subsets that the games end
with are evaluated, and the metamodel trains on. With `--ranks 2` two processes train it (`azq.parts.ranks`); this one searches.
Letters: N features, K of them chosen, M members, R rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from azq import logs
from azq.bus.base import Bus
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.config import SearchConfig
from azq.games.adapter import AdaptedGame
from azq.parts import ranks
from azq.search.search import exploring, make_search

MEMBERS, ROWS = 8, 64
FIRST = 5 * MEMBERS  # evaluations at random, before there is anything to predict from
STEPS_A_ROUND, STEPS_AT_FIRST = 20, 200
SIMULATIONS = 24
EVALUATIONS = "example:evaluations"  # where ranks read what was evaluated
FAILED = "training step failed, continuing with inference"
FOLDS = 5
FEATURES, CHOOSE = 20, 5

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


def planted(seed: int, features: int = FEATURES, rows: int = 600) -> Worth:
    """Two pairs of features that tell nothing alone, since a stir that is no target's hides in both; one that does; copies of the target
    with noise, which tell most alone and little together; the rest is noise. In random order."""
    rng = np.random.default_rng(seed)
    causes, stirs = rng.normal(size=(rows, 3)), 3 * rng.normal(size=(rows, 2))
    target = causes @ [1.0, 1.0, 0.7] + 0.3 * rng.normal(size=rows)
    hidden = [causes[:, 0] + stirs[:, 0], stirs[:, 0], causes[:, 1] + stirs[:, 1], stirs[:, 1], causes[:, 2]]
    decoys = [target + 3 * rng.normal(size=rows) for _ in range(min(5, features - len(hidden)))]
    columns = np.column_stack([*hidden, *decoys, rng.normal(size=(rows, features - len(hidden) - len(decoys)))])
    return Worth(columns[:, rng.permutation(features)], target)


def at_random(rng: np.random.Generator, worth: Worth, choose: int, number: int, known: dict[Subset, float]) -> list[Subset]:
    """So many subsets that are not known."""
    found: dict[Subset, None] = {}
    while len(found) < number:
        subset = tuple(sorted(rng.choice(worth.features, choose, replace=False).tolist()))
        if subset not in known:
            found[subset] = None
    return list(found)


def exhaustive(worth: Worth, choose: int) -> float:
    """The best there is."""
    return float(worth.of(np.array(list(combinations(range(worth.features), choose)))).max())


class Metamodel(nn.Module):
    """What M members think a subset is worth: a feature's own part, what pairs add, and a small network over both."""

    def __init__(self, features: int, width: int = 24, hidden: int = 32) -> None:
        super().__init__()
        self.alone = nn.Parameter(0.1 * torch.randn(MEMBERS, features, 1))
        self.pairs = nn.Parameter(0.2 * torch.randn(MEMBERS, features, width))
        self.inner = nn.Parameter(torch.randn(MEMBERS, width, hidden) / math.sqrt(width))
        self.outer = nn.Parameter(torch.randn(MEMBERS, hidden, 1) / math.sqrt(hidden))
        self.offset = nn.Parameter(torch.zeros(MEMBERS, 1, 1))

    def forward(self, chosen: Tensor) -> Tensor:
        """Predictions (M, R) for subsets (R, N), or (M, R, N) with other ones for each member."""
        together = (chosen @ self.pairs).square() - chosen @ self.pairs.square()  # of each two features the product
        deeper = torch.relu(together @ self.inner) @ self.outer
        return (chosen @ self.alone + together.mean(2, keepdim=True) + deeper + self.offset).squeeze(2)


@dataclass
class Evaluations:
    """What was evaluated, in order, and how many were known from which training step on; ranks share it by a broker."""

    bus: Bus
    features: int
    worth: dict[Subset, float] = field(default_factory=dict)
    known: list[tuple[int, int]] = field(default_factory=list)

    def add(self, worth: dict[Subset, float], step: int) -> None:
        self.worth |= worth
        self.known.append((step, len(self.worth)))
        self.bus.put(EVALUATIONS, json.dumps([list(self.worth.items()), self.known]).encode())

    def batch(self, step: int, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Subsets (R, N) of a step's batch, their standardised worth (R, 1), and each member's weights for them (R, M)."""
        pairs, known = json.loads(self.bus.get(EVALUATIONS) or b"[[], []]")
        count = [number for first, number in known if first <= step][-1]
        worth = torch.tensor([value for _, value in pairs[:count]])
        drawn = torch.randint(count, (ROWS,), generator=torch.Generator().manual_seed(step))[rows]
        chosen = bits([subset for subset, _ in pairs[:count]], self.features)
        weights = -torch.rand(count, MEMBERS, generator=torch.Generator().manual_seed(0)).log()  # row by row: they stay as more come
        return chosen[drawn], ((worth - worth.mean()) / worth.std())[drawn, None], weights[drawn]


def bits(subsets: Any, features: int) -> Tensor:
    return torch.zeros(len(subsets), features).scatter_(1, torch.as_tensor(subsets, dtype=torch.long), 1.0)


class ChoosingFeatures:
    """The game, with OpenSpiel's method names; what a whole subset is worth, in [-1, 1], is for `verdict` to say."""

    def __init__(self, features: int, choose: int, verdict: Callable[[Subset], float], chosen: Subset = ()) -> None:
        self._features, self._choose, self._verdict, self.chosen = features, choose, verdict, chosen

    def current_player(self) -> int:
        return 0

    def legal_actions(self) -> list[int]:
        return [feature for feature in range(self._features) if feature not in self.chosen]

    def apply_action(self, action: int) -> None:
        self.chosen = tuple(sorted((*self.chosen, action)))

    def is_terminal(self) -> bool:
        return len(self.chosen) == self._choose

    def returns(self) -> list[float]:
        return [self._verdict(self.chosen)]

    def observation_tensor(self, player: int) -> list[int]:
        return [int(feature in self.chosen) for feature in range(self._features)]

    def clone(self) -> ChoosingFeatures:
        return ChoosingFeatures(self._features, self._choose, self._verdict, self.chosen)

    def __str__(self) -> str:
        return str(self.chosen)


class Guesses:
    """What the metamodel, as it is now, says to each member's game. What was evaluated is worth nothing: it has nothing new to tell."""

    def __init__(self, module: nn.Module, worth: dict[Subset, float], features: int, choose: int) -> None:
        self._module, self._worth, self._features, self._choose = module, worth, features, choose
        self._said: dict[Subset, list[float]] = {}

    def of_subset(self, member: int, subset: Subset) -> float:
        if subset in self._worth:
            return -1.0
        if subset not in self._said:
            self._said[subset] = squashed(self._module(bits([subset], self._features))[:, 0]).tolist()
        return self._said[subset][member]

    def of_positions(self, chosen: Tensor) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """For a position of each member's game, (M, N): the logits of features, and what it is worth, once it is filled up by the best."""
        guesses = self._with_one_more(chosen)
        logits = guesses.clamp(-9, 9).numpy().astype(np.float16)
        worth, chosen = torch.zeros(len(chosen)), chosen.clone()
        for _ in range(self._choose):
            missing = chosen.sum(1) < self._choose
            guesses = torch.where(chosen > 0, -torch.inf, guesses)
            for row in torch.nonzero(chosen.sum(1) == self._choose - 1).flatten().tolist():
                subset = torch.nonzero(chosen[row]).flatten().tolist()
                known = [tuple(sorted((*subset, feature))) in self._worth for feature in range(self._features)]
                guesses[row, torch.tensor(known)] = -torch.inf
            best = guesses.max(1)
            worth = torch.where(missing, best.values, worth)
            chosen[missing] = chosen[missing].scatter(1, best.indices[missing, None], 1.0)
            if not (chosen.sum(1) < self._choose).any():
                break
            guesses = self._with_one_more(chosen)
        return logits, squashed(worth)[:, None].numpy().astype(np.float16)

    def _with_one_more(self, chosen: Tensor) -> Tensor:
        found: Tensor = self._module((chosen[:, None, :] + torch.eye(self._features)).clamp(max=1))
        return found


def squashed(guesses: Tensor) -> Tensor:
    """Standardised worth in [-1, 1]."""
    return torch.tanh(guesses / 3)


@torch.no_grad()
def played(guesses: Guesses, features: int, choose: int, seed: int) -> list[Subset]:
    """What each member's game ends with, its moves searched on what that member says."""
    config = exploring(SearchConfig(num_simulations=SIMULATIONS))
    searches = []
    for member in range(MEMBERS):
        make = partial(ChoosingFeatures, features, choose, partial(guesses.of_subset, member))
        game: Any = AdaptedGame("features", {}, make, players=1, actions=features, max_length=choose)
        searches.append(make_search(game, config, num_slots=1, seed=seed + member))
        searches[-1].start(0, uid=seed, actions=np.zeros(0, np.uint16))
    packed, slots = np.zeros((1, (features + 7) // 8), np.uint8), np.zeros(1, np.int32)
    positions = np.zeros((MEMBERS, features), np.uint8)
    while True:
        waiting = []
        for member, search in enumerate(searches):
            if search.collect(packed, slots):
                positions[member] = np.unpackbits(packed[0], count=features, bitorder="little")
                waiting.append(member)
        if not waiting:
            return [tuple(sorted(search.record(0).actions.tolist())) for search in searches]
        logits, values = guesses.of_positions(torch.from_numpy(positions).float())
        for member in waiting:
            searches[member].apply(logits[member : member + 1], values[member : member + 1])


def trainer_of(evaluations: Evaluations, seed: int, fail_step: int | None) -> ranks.ModuleTrainer:
    """The same on every rank; from the first epoch on, all have rank 0's weights."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    module, failing = Metamodel(evaluations.features), {fail_step}

    def loss(model: nn.Module, chosen: Tensor, worth: Tensor, weights: Tensor) -> Tensor:
        if trainer.step in failing:
            failing.clear()
            raise RuntimeError(f"step {trainer.step} fails, as --fail-step asked")
        errors: Tensor = (model(chosen).T - worth).square() * weights
        return errors.mean()

    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    trainer = ranks.ModuleTrainer(module, optimizer, loss, evaluations.batch)
    return trainer


def train(training: ranks.PlainTraining, trainer: ranks.ModuleTrainer, steps: int) -> None:
    """Takes the steps; where one fails, the metamodel is as it was before its round, and answers on."""
    until = trainer.step + steps
    while trainer.step < until:
        before, done = trainer.snapshot(), 0
        try:
            done = training.step(until - trainer.step)
        except RuntimeError as error:
            tell(f"step {trainer.step}: {error}")
            trainer.restore(*before)
        if not done:
            tell(FAILED)
            return


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def searched(
    worth: Worth, choose: int, budget: int, seed: int, evaluations: Evaluations, training: ranks.PlainTraining, trainer: ranks.ModuleTrainer
) -> dict[Subset, float]:
    """What was evaluated, in order."""
    rng, known = np.random.default_rng(seed), evaluations.worth
    new = at_random(rng, worth, choose, min(FIRST, budget), known)
    while True:
        evaluations.add(worth.each(new), trainer.step)
        tell(f"{len(known)} of {budget} evaluated, best R^2 {max(known.values()):.4f}")
        if len(known) >= budget:
            return known
        train(training, trainer, STEPS_A_ROUND if trainer.step else STEPS_AT_FIRST)
        ends = played(Guesses(trainer.module, known, worth.features, choose), worth.features, choose, seed=int(rng.integers(2**31)))
        new = [subset for subset in dict.fromkeys(ends) if subset not in known]
        new = (new or at_random(rng, worth, choose, 1, known))[: budget - len(known)]


@contextlib.contextmanager
def trained(options: argparse.Namespace) -> Iterator[tuple[Evaluations, ranks.PlainTraining, ranks.ModuleTrainer]]:
    """Rank 0, its broker, and as many processes of this very file with RANK set as are to train with it."""
    with tempfile.TemporaryDirectory(prefix="azq-example-") as folder, contextlib.ExitStack() as ends:
        broker = EmbeddedServer("control", Path(folder))
        broker.start()
        ends.callback(broker.stop)
        environment = {**os.environ, "WORLD_SIZE": str(options.ranks), "BROKER": broker.url}  # it holds a password, so it is no argument
        evaluations = Evaluations(RedisBus(broker.url), FEATURES)
        ends.callback(evaluations.bus.close)
        trainer, place = trainer_of(evaluations, options.seed, options.fail_step), ranks.RankPlace(0, options.ranks)
        for rank in range(1, options.ranks):
            other = subprocess.Popen([sys.executable, *sys.argv], env={**environment, "RANK": str(rank)})
            ends.callback(other.wait)
            ends.callback(other.kill)  # the last that is said is done first
        with ranks.initialise(trainer, broker.url, place, rows=ROWS) as training:
            training.wait_for(options.ranks)
            yield evaluations, training, trainer


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=310, help="at most (2 %% of all subsets)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1, help="processes that train the metamodel (1)")
    parser.add_argument("--fail-step", type=int, help="a training step that fails, by its number")
    options = parser.parse_args()
    logs.setup("features")  # to standard error
    worth, place = planted(options.seed), ranks.place_of(os.environ, options.ranks)
    if place.rank:
        bus = RedisBus(os.environ["BROKER"])
        ranks.follow(trainer_of(Evaluations(bus, FEATURES), options.seed, None), os.environ["BROKER"], place)
        return 0
    with trained(options) as (evaluations, training, trainer):
        known = searched(worth, CHOOSE, options.evaluations, options.seed, evaluations, training, trainer)
        figures = training.statistics()
    best, subset = exhaustive(worth, CHOOSE), max(known, key=known.__getitem__)
    said = {"evaluations": len(known), "subset": subset, "worth": known[subset], "best": best, "found": known[subset] >= best - 1e-9}
    print(json.dumps({**said, "steps": trainer.step, "ranks": figures.ranks, "lost": figures.failures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
