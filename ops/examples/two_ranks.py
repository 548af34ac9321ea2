"""Trains a classifier of two spirals, which is no game, on two processes: `python ops/examples/two_ranks.py [--kill]`.

This process is rank 0. It starts a broker, where the ranks find each other, and rank 1, which is this very file with RANK=1. With
`--kill` it kills rank 1 a third of the way, trains on without it, and starts another, which takes over weights and optimiser from rank 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from azq.bus.embedded import EmbeddedServer
from azq.learner.rounds import RanksFigures
from azq.parts import ranks

POINTS, ROWS, RANKS = 4000, 256, 2
STEPS_A_ROUND = 10  # a rank that is lost over a round costs that round


def spirals(seed: int) -> tuple[Tensor, Tensor]:
    """Points (N, 2) of two spirals, and which of both (N,) each is of."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(2, (POINTS,), generator=generator).float()
    along = torch.rand(POINTS, generator=generator)
    angle = 2 * torch.pi * (1.5 * along + which / 2)
    points = torch.stack([angle.cos(), angle.sin()], 1) * along[:, None]
    return points + 0.01 * torch.randn(POINTS, 2, generator=generator), which


def spirals_trainer() -> ranks.ModuleTrainer:
    """The same on every rank; from the first epoch on, all have rank 0's weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    points, which = spirals(seed=1)

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets)

    def draw(step: int, rows: slice) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(POINTS, (ROWS,), generator=torch.Generator().manual_seed(step))[rows]
        return points[chosen], which[chosen]

    return ranks.ModuleTrainer(module, torch.optim.AdamW(module.parameters(), lr=5e-3), loss, draw)


def start_other(address: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": str(RANKS), "BROKER": address}  # it holds a password, so it is no argument
    return subprocess.Popen([sys.executable, __file__], env=environment)


def train(training: ranks.PlainTraining, trainer: ranks.ModuleTrainer, until: int) -> None:
    while trainer.step < until:
        if not training.step(min(STEPS_A_ROUND, until - trainer.step)):
            print(f"step {trainer.step}: a rank was lost, its round is undone; the module answers as before", flush=True)


@torch.no_grad()
def accuracy(module: nn.Module) -> float:
    """On points that were not trained on."""
    points, which = spirals(seed=2)
    return float(((module(points).squeeze(1) > 0) == (which > 0.5)).float().mean())


def print_statistics(figures: RanksFigures) -> None:
    print(f"{'rank':>4} {'state':8} {'device':6} {'rows':>5} {'samples/s':>10} {'step ms':>8} {'errors':>6}")
    for row in figures.by_rank:
        times = f"{row.samples_per_s:10.0f} {1e3 * row.batch_s:8.2f}"
        print(f"{row.rank:4} {row.state:8} {row.device:6} {row.rows:5} {times} {row.errors:6} {row.reason}")
    print(f"{figures.healthy} of {figures.ranks} ranks train, {figures.failures} lost; scaling efficiency {figures.efficiency:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kill", action="store_true", help="kill rank 1 a third of the way, and start another")
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    place, trainer = ranks.place_of(os.environ, RANKS), spirals_trainer()
    if place.rank:
        ranks.follow(trainer, os.environ["BROKER"], place)
        return
    with tempfile.TemporaryDirectory(prefix="azq-example-") as folder:
        broker = EmbeddedServer("control", Path(folder))
        broker.start()
        others = [start_other(broker.url)]
        try:
            with ranks.initialise(trainer, broker.url, place, rows=ROWS) as training:
                training.wait_for(RANKS)
                train(training, trainer, options.steps // 3)
                if options.kill:
                    others[0].kill()
                    train(training, trainer, 2 * options.steps // 3)
                    print(f"step {trainer.step}: {training.statistics().healthy} of {RANKS} ranks train", flush=True)
                    others.append(start_other(broker.url))
                    training.wait_for(RANKS)
                train(training, trainer, options.steps)
                print_statistics(training.statistics())
            print(f"step {trainer.step}: {accuracy(trainer.module):.1%} of new points are told apart")
            others[-1].wait(timeout=30)  # it heard that training is over
        finally:
            for other in others:
                other.kill()
                other.wait()
            broker.stop()


if __name__ == "__main__":
    main()
