"""A module that is no game on two ranks over a real broker, forked so that none imports torch again; and the example that does so."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from waiting import PATIENCE_S

from azq.parts import ranks
from azq.parts.ranks import leader as leader_module

FORK = multiprocessing.get_context("fork")
EXAMPLES = Path(__file__).parents[3] / "ops" / "examples"
EXAMPLE, FEATURES = EXAMPLES / "two_ranks.py", EXAMPLES / "feature_selection.py"
ROWS = 32
TOLERANCE = 1e-4  # sums in another order, over some hundred steps


def trainer_of(room: int = 0) -> ranks.ModuleTrainer:
    """Fits a plane, in passes of at most `room` rows, where that is said."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    module = nn.Linear(4, 1)

    def draw(step: int, rows: slice) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(step))[rows]
        return inputs, inputs.sum(1, keepdim=True)

    def loss(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        if room and len(inputs) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return (model(inputs) - targets).square().mean()

    return ranks.ModuleTrainer(module, torch.optim.SGD(module.parameters(), lr=0.003, momentum=0.5), loss, draw)


def weights_of(trainer: ranks.ModuleTrainer) -> np.ndarray:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.module.parameters()]).numpy()


def lead(url: str, door: Any) -> None:
    """Trains single steps; says after each how it stands, and ends when it is told to."""
    leader_module.POLL_S = leader_module.SETTLE_S = 0.2
    trainer = trainer_of()
    with ranks.initialise(trainer, url, ranks.RankPlace(0, 2), rows=ROWS) as training:
        while not door.poll():
            before, done = weights_of(trainer), training.step(2)
            was_undone = done > 0 or np.array_equal(before, weights_of(trainer))
            door.send((trainer.step, done, was_undone, training.statistics()))
        door.recv()
    door.send((trainer.step, weights_of(trainer)))
    door.recv()  # nobody reads what a process that ended had sent


def follow(url: str, room: int) -> None:
    ranks.follow(trainer_of(room), url, ranks.RankPlace(1, 2))


class Pair:
    """Both ranks, and what rank 0 said last."""

    def __init__(self, url: str, room: int) -> None:
        self._url, self._room = url, room
        self.fresh = trainer_of()  # before the first fork: with its first optimiser, torch imports for seconds
        self.door, inner = FORK.Pipe()
        self.processes = [self._forked(lead, url, inner)]
        self.figures: Any = None
        self.steps, self.was_undone = 0, True
        self.start_other()

    def start_other(self) -> None:
        self.other = self._forked(follow, self._url, self._room)
        self.processes.append(self.other)

    def until(self, wanted: Callable[[Any], bool], what: str, seconds: float = 120.0) -> None:
        while True:
            assert self.door.poll(seconds), f"rank 0 says nothing; wanted: {what}; {self.figures}"
            step, done, was_undone, self.figures = self.door.recv()
            self.steps, self.was_undone = self.steps + done, self.was_undone and was_undone
            assert step == self.steps  # what a loss undid is counted nowhere
            if wanted(self.figures):
                return

    def more(self, steps: int) -> None:
        wanted = self.steps + steps
        self.until(lambda _: self.steps >= wanted, f"{steps} steps more")

    def end(self) -> tuple[int, np.ndarray]:
        """Steps and weights of rank 0 at its end."""
        self.door.send("end")
        while len(said := self.door.recv()) != 2:
            pass
        steps, weights = said
        return steps, weights

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def _forked(self, body: Callable[..., None], *arguments: Any) -> Any:
        def run() -> None:
            try:
                body(*arguments)
            finally:
                os._exit(0)  # nothing of the test process that was forked is to run again

        process = FORK.Process(target=run, daemon=True)
        process.start()
        return process


@pytest.fixture
def pair(broker: Any) -> Iterator[Callable[..., Pair]]:
    pairs: list[Pair] = []

    def make(room: int = 0) -> Pair:
        pairs.append(Pair(broker.control_url, room))
        return pairs[-1]

    yield make
    for one in pairs:
        one.close()


@pytest.mark.release
def test_a_killed_rank_does_not_stop_the_other_and_nothing_is_lost_of_what_was_learned(pair):
    both = pair()
    both.until(lambda figures: figures.healthy == 2, "both train")
    both.more(20)
    both.other.kill()
    both.until(lambda figures: figures.failures >= 1 and figures.healthy == 1, "the loss is noticed")
    both.more(20)
    both.start_other()
    both.until(lambda figures: figures.healthy == 2, "another one is there")
    both.more(20)
    figures = both.figures
    assert [(row.rank, row.state) for row in figures.by_rank] == [(0, "trains"), (1, "trains")]
    assert sum(figures.shares) == sum(row.rows for row in figures.by_rank) == ROWS
    assert figures.by_rank[1].errors >= 1
    assert all(row.memory_bytes > 0 and row.batch_s > 0 and row.host and row.device == "cpu" for row in figures.by_rank)
    assert both.was_undone
    steps, found = both.end()
    both.other.join(PATIENCE_S)
    assert both.other.exitcode == 0  # it followed rank 0 to its end
    alone, before = both.fresh, weights_of(both.fresh)
    for step in range(steps):
        with ranks.plain.PlainWork(alone).take(ranks.plain.RowsOrder(step, 0, ROWS)) as rows:
            alone.train_on(rows, 0.0)
    assert np.abs(found - weights_of(alone)).max() < TOLERANCE
    assert np.abs(found - before).max() > 100 * TOLERANCE


def test_a_rank_without_memory_takes_smaller_passes_of_as_many_rows(pair):
    both = pair(room=3)
    both.until(
        lambda figures: figures.healthy == 2 and 0 < figures.by_rank[1].micro_batch <= 3 < figures.by_rank[1].rows, "one trains in parts"
    )
    both.more(10)
    assert sum(both.figures.shares) == ROWS
    assert both.figures.by_rank[1].reason == "out of memory"


@pytest.mark.release
@pytest.mark.parametrize("options", [[], ["--kill"]])
def test_the_example_learns_whether_a_rank_is_killed_or_not(options):
    ran = subprocess.run([sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr
    *_, rank_0, rank_1, together, end = ran.stdout.splitlines()
    assert rank_0.split()[:2] == ["0", "trains"]
    assert rank_1.split()[:2] == ["1", "trains"]
    assert together.startswith(f"2 of 2 ranks train, {len(options)} lost")
    assert float(end.partition(": ")[2].partition("%")[0]) > 90
    assert ("1 of 2 ranks train" in ran.stdout) == bool(options)


@pytest.mark.release
def test_two_ranks_train_a_metamodel_whose_search_ends_as_with_one_though_a_step_fails():
    said = {}
    for count in ("1", "2"):
        command = [sys.executable, str(FEATURES), "--seed", "5", "--evaluations", "160", "--ranks", count, "--fail-step", "250"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.count("training step failed, continuing with inference") == 1
        said[count] = json.loads(ran.stdout)
    assert all(row["found"] and row["evaluations"] == 160 for row in said.values())
    assert said["1"]["subset"] == said["2"]["subset"]
    assert (said["2"]["ranks"], said["2"]["lost"], said["1"]["lost"]) == (2, 1, 0)
    assert said["2"]["steps"] > 250
