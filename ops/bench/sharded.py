"""What a rank holds of a transformer, and what a step costs, where each rank has all of it and where each has a part (`learner.shard`).

    .venv/bin/python ops/bench/sharded.py [--blocks 6 --channels 384 --rows 16 --steps 3] > sharded.json

One rank alone, then 2 and 4 with the same rows of a step in all, over gloo on loopback, one thread each.
`state`: weights, gradients, optimiser and average, counted tensor by tensor. `peak`: resident memory at most over the steps, beyond what
the process had before it made a network; activations and buffers of messages are in it, and memory shared by ranks counts for each.
CPU seconds are those of all ranks together.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.data.batches import Batch
from azq.learner.ranks.group import RankGroup, open_store, reach_store
from azq.learner.ranks.reducing import Stopwatch, sync_of
from azq.learner.ranks.rules import LOOPBACK
from azq.learner.ranks.sharding import Sharded, bytes_of
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build
from azq.replay.samples import Samples

CPU = torch.device("cpu")
# Memory that is let go of is the system's again, so that what is resident is what is used.
ENVIRON = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
MEETING_S = 600.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name, number in (("blocks", 6), ("channels", 384), ("rows", 16), ("steps", 3)):
        options.add_argument(f"--{name}", type=int, default=number)
    asked = options.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRON.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRON})
    rows = [_measured(asked, size, shard) for size, shard in ((1, "none"), (2, "none"), (2, "full"), (4, "none"), (4, "full"))]
    print(json.dumps({"network": f"transformer {asked.blocks}x{asked.channels}", "rows": asked.rows, "ways": rows}, indent=2))


def _measured(asked: argparse.Namespace, size: int, shard: str) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    names, results = context.SimpleQueue(), context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="azq-ranks-") as folder:
        ranks = [context.Process(target=_rank, args=(asked, place, size, shard, Path(folder), names, results)) for place in range(size)]
        for rank in ranks:
            rank.start()
        found = sorted(results.get() for _ in ranks)
        for rank in ranks:
            rank.join()
    each = [{"state_MB": state / 1e6, "peak_MB": peak / 1e6} for _, state, peak, _, _ in found]
    cpu_s, wall_s = sum(row[3] for row in found) / asked.steps, max(row[4] for row in found) / asked.steps
    return {"ranks": size, "shard": shard, "cpu_s_a_step": round(cpu_s, 3), "wall_s_a_step": round(wall_s, 3), "each": each}


def _rank(asked: argparse.Namespace, place: int, size: int, shard: str, folder: Path, names: Any, results: Any) -> None:
    torch.set_num_threads(1)
    if place == 0:
        store, name = open_store(folder, LOOPBACK, size, timeout_s=MEETING_S)
        for _ in range(size - 1):
            names.put(name)
    else:
        store = reach_store(folder, names.get(), LOOPBACK, size, timeout_s=MEETING_S)
    group = RankGroup(store, 1, place, size, CPU, MEETING_S)
    before = _resident("VmRSS")
    config = LearnerConfig(device="cpu", precision="float32", ranks=size, batch_size=max(size, asked.rows))
    spec = NetSpec.of(games.load("connect_four"))
    network = NetworkConfig(kind="transformer", blocks=asked.blocks, channels=asked.channels)
    trainer = Trainer(build(network, spec, seed=0), spec, config, CPU)
    if shard == "full":
        sync: Any = Sharded(trainer, Stopwatch(CPU))
    elif size > 1:
        sync = sync_of(trainer.module, config, CPU)
    if size > 1:
        sync.share(place, (asked.rows // size,) * size)
        trainer.join(sync)
    batch = Batch(_samples(spec, asked.rows // size))
    trainer.train_on(batch, 0.0)
    dist.barrier()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(asked.steps):
        trainer.train_on(batch, 0.0)
    dist.barrier()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    results.put((place, bytes_of(trainer), _resident("VmHWM") - before, cpu_s, wall_s))
    trainer.leave()
    group.close()
    os._exit(0)


def _samples(spec: NetSpec, rows: int) -> Samples:
    rng = np.random.default_rng(0)
    policies: NDArray[np.float16] = np.zeros((rows, spec.num_actions), np.float16)
    policies[:, 0] = 1
    masks = np.packbits(np.ones((rows, spec.num_actions), np.uint8), axis=1, bitorder="little")
    return Samples(rng.integers(0, 256, (rows, spec.packed_size), dtype=np.uint8), policies, np.zeros((rows, 1), np.float32), masks)


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


if __name__ == "__main__":
    main()
