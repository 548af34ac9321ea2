"""How well ranks scale: several train together, each on a core or GPU of its own; beside them one alone, and as many that do not
synchronise, which tells what the cores take from each other. Each rank has the same batch and is a process of its own.

And what it costs to survive the loss of one: rounds that can be undone, as `azq.parts.ranks.leader` takes them, beside the same steps
in one go, and beside torch's plain reduction of gradients in one go.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import validate_call
from torch._C._distributed_c10d import FileStore

from azq.config import Config, LearnerConfig, RunSections
from azq.errors import ConfigError
from azq.learner.data.batches import Feed, Order
from azq.learner.learner import PHASE_S
from azq.learner.opening import training_device
from azq.learner.rounds import RoundTiming, TrainingRound, run_round
from azq.learner.step.stepper import Sync
from azq.learner.step.trainer import Trainer
from azq.nets.device import prepare_process
from azq.parts.lab.bench.learner import workplace
from azq.parts.lab.bench.rig import PartProcess, say
from azq.parts.ranks.group import RankGroup, Word, listen_towards
from azq.parts.ranks.reducing import Reducing, Stopwatch, hook_of, sync_of, train_together
from azq.parts.ranks.rules import LOOPBACK

WINDOW = 100_000
TURNS = 4  # all ways in turns, so that whatever else the machine does weighs on both alike
JOIN_S = 60.0
MOST_S, MOST = 600.0, 20.0  # what the measurement may take: torch is loaded, processes meet; times what was asked for


def bench_ranks(config: Config, seconds: float, ranks: int) -> dict[str, Any]:
    """Weak scaling: samples per second of `ranks` ranks / (`ranks` times that of one alone), and the share of time they wait.

    Raises `EvaluationTimeout` when a rank ends before its figures are there, `ConfigError` for ranks that hold a part each.
    """
    if config.learner.shard != "none":
        raise ConfigError("`azq bench learner` compares ranks that hold all of a network, without learner.shard")
    sections = config.run_sections().model_dump(mode="json")
    with tempfile.TemporaryDirectory(prefix="azq-ranks-") as folder:
        start = partial(PartProcess, train, sections=sections, ranks=ranks, seconds=seconds, folder=folder)
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(start(place=0))
            meeting = first.read(MOST_S)
            for place in range(1, ranks):
                stack.enter_context(start(place=place, meeting=meeting))
            return dict(first.read(MOST_S + MOST * seconds))


@dataclass(slots=True)
class _Rank:
    """One process of the benchmark."""

    group: RankGroup
    trainer: Trainer
    feed: Feed
    sync: Sync
    plain: Sync  # torch's own way to reduce gradients
    rows: int
    cpu_s: float = 0.0  # that all ranks took in rounds at once

    def alone(self, planned: TrainingRound) -> RoundTiming:
        """Takes steps as if there were no others."""
        watch = Stopwatch(self.trainer.device)
        self.trainer.leave()
        watch.begin()
        run_round(self.trainer, self.feed, planned, self._order())
        watch.end()
        return RoundTiming(planned.steps, self.rows, watch.taken_s(), 0.0)

    def at_once(self, planned: TrainingRound, way: str) -> list[RoundTiming]:
        """Takes steps while the others do: together as a learner's ranks, in torch's plain way, or apart from them."""
        begun_s = time.process_time()
        sync = {"train": self.sync, "plain": self.plain}.get(way) or Sync(self.trainer.module)
        self.trainer.join(sync)
        timings = train_together(self.group, sync, self.trainer, self.feed, planned, self._order())
        spent = torch.tensor([time.process_time() - begun_s], dtype=torch.float64)
        dist.all_reduce(spent)
        self.cpu_s += spent.item()
        return timings

    def saved(self) -> None:
        """Copies what a lost rank would have to be undone to."""
        begun_s = time.process_time()
        self.trainer.snapshot()
        self.cpu_s += time.process_time() - begun_s

    def _order(self) -> Order:
        return self.feed.order(self.trainer.step, self.rows, WINDOW)


@validate_call
def train(sections: RunSections, ranks: int, seconds: float, folder: Path, place: int, meeting: str = "") -> dict[str, Any] | None:
    """One rank; rank 0 says where they meet, and returns the figures."""
    device = training_device(sections.learner, place)
    if device.type == "cpu":
        _take_core(place)
    if place == 0:
        say(meeting := secrets.token_hex(16))
    listen_towards(LOOPBACK)
    store = FileStore(str(folder / meeting), ranks)
    store.set_timeout(timedelta(seconds=JOIN_S))
    group = RankGroup(store, 1, place, ranks, device, JOIN_S)
    rank = _rank(sections, device, group)
    try:
        if place == 0:
            return _lead(rank, sections, seconds)
        _follow(rank)
        return None
    finally:  # threads that still run when the interpreter ends would abort it
        rank.feed.close()
        rank.trainer.leave()
        group.close()


def _take_core(place: int) -> None:
    prepare_process(1)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[place % len(cores)]})


def _rank(sections: RunSections, device: torch.device, group: RankGroup) -> _Rank:
    trainer, _, feed = workplace(sections, device, WINDOW, group.place)
    sync, rows = sync_of(trainer.module, sections.learner, device), sections.learner.batch_size
    plain = Reducing(trainer.module, hook_of(LearnerConfig()), Stopwatch(device))
    for one in (sync, plain):
        one.share(group.place, (rows,) * group.size)
    return _Rank(group, trainer, feed, sync, plain, rows)


def _lead(rank: _Rank, sections: RunSections, seconds: float) -> dict[str, Any]:
    warm_up = TrainingRound(0, 2, rank.rows, WINDOW, 0.0)
    rank.alone(warm_up)
    paced = rank.alone(warm_up)
    steps = max(2, int(seconds / TURNS / 6 * paced.steps / paced.wall_s))
    for way in ("train", "plain"):
        _at_once(rank, warm_up, way)
    alone: list[RoundTiming] = []
    apart: list[tuple[float, list[RoundTiming]]] = []
    shared: list[tuple[float, list[RoundTiming]]] = []
    planned = TrainingRound(0, steps, rank.rows * rank.group.size, WINDOW, 0.0)
    for _ in range(TURNS):
        alone.append(rank.alone(planned))
        apart.append(_at_once(rank, planned, "apart"))
        shared.append(_at_once(rank, planned, "train"))
    safety = _cost_of_safety(rank, planned, paced.batch_s)
    rank.group.tell(Word("leave"))
    one = sum(timing.steps * timing.rows for timing in alone) / sum(timing.wall_s for timing in alone)
    wall_s = sum(taken_s for taken_s, _ in shared)
    done = steps * TURNS * rank.rows * rank.group.size
    every = done / wall_s
    beside = done * rank.group.size / sum(timing.wall_s for _, timings in apart for timing in timings)
    waited_s = sum(timing.waited_s for _, timings in shared for timing in timings) / rank.group.size
    return {
        "game": sections.run.game,
        "network": f"{sections.network.kind} {sections.network.blocks}x{sections.network.channels}",
        "device": rank.trainer.device.type,
        "precision": rank.trainer.precision,
        "ranks": rank.group.size,
        "batch_size_per_rank": rank.rows,
        "sync_every": sections.learner.sync_every,
        "compression": sections.learner.compression,
        "samples_per_s_alone": round(one),
        "samples_per_s_unsynchronised": round(beside),
        "samples_per_s": round(every),
        "share_of_unsynchronised": round(every / beside, 3),
        "weak_scaling_efficiency": round(every / (rank.group.size * one), 3),
        "share_of_waiting": round(waited_s / wall_s, 3),
        "step_ms": round(1e3 * wall_s / steps / TURNS, 2),
        **safety,
    }


def _cost_of_safety(rank: _Rank, planned: TrainingRound, step_s: float) -> dict[str, float]:
    """Medians over turns: wall clock and CPU-seconds of all ranks in rounds that can be undone, over those of the same steps in one go."""
    length = max(1, int(PHASE_S / step_s))
    lengths = [length] * (planned.steps // length) + [planned.steps % length] * bool(planned.steps % length)
    rounds = [replace(planned, steps=steps) for steps in lengths]
    spent: dict[str, list[tuple[float, float]]] = {"rounds": [], "train": [], "plain": []}
    for turn in range(TURNS):
        for way in sorted(spent, reverse=bool(turn % 2)):
            start_s, rank.cpu_s = time.perf_counter(), 0.0
            for part in rounds if way == "rounds" else [planned]:
                if way == "rounds":
                    rank.saved()
                _at_once(rank, part, "train" if way == "rounds" else way)
            spent[way].append((time.perf_counter() - start_s, rank.cpu_s))

    def over(other: str, column: int) -> float:
        pairs = zip(spent["rounds"], spent[other], strict=True)
        return round(statistics.median(safe[column] / bare[column] for safe, bare in pairs), 3)

    return {
        "safe_over_unsafe_wall": over("train", 0),
        "safe_over_unsafe_cpu": over("train", 1),
        "safe_over_plain_torch_wall": over("plain", 0),
        "safe_over_plain_torch_cpu": over("plain", 1),
    }


def _at_once(rank: _Rank, planned: TrainingRound, way: str) -> tuple[float, list[RoundTiming]]:
    """A round of every rank: seconds until the last was done, and what it cost each."""
    start = time.perf_counter()
    rank.group.tell(Word(way, planned=planned))
    timings = rank.at_once(planned, way)
    return time.perf_counter() - start, timings


def _follow(rank: _Rank) -> None:
    while (word := rank.group.hear()).op != "leave":
        assert word.planned is not None
        rank.at_once(word.planned, word.op)
