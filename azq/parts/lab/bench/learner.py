"""How much of the learner is training: its whole step against a bare loop on random tensors, on the device of the settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from azq import games
from azq.config import Config, RunSections
from azq.errors import DeviceError
from azq.learner.data.batches import Draws, Feed, Order, Prefetcher
from azq.learner.opening import prepare_training
from azq.learner.step.compiling import compile_where_faster
from azq.learner.step.loss import Symmetries, losses
from azq.learner.step.trainer import Trainer, autocast_dtype
from azq.nets import NetSpec, build
from azq.parts.lab.bench.rig import changed, in_turns, rules
from azq.process.proc import peak_resident_bytes
from azq.replay.samples import NO_COLUMNS, Columns, Samples
from azq.replay.window import Window

_CHUNK = 10_000  # samples written to the window at once
_TURNS = 4


def bench_learner(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Samples per second of the whole step beside a bare training loop, and the memory of a 1 M-sample window."""
    return training(changed(config, run={"game": game}), seconds)


def training(config: Config, seconds: float, window_samples: int = 1_000_000) -> dict[str, Any]:
    """Samples per second and per CPU-second of both loops, and the peak resident memory of this process with a full window.

    The bare loop is the fastest that we know: on GPUs, and where `learner.compile` is set, that of torch's compiler is tried too.
    The window holds random bytes in the game's shapes, `window_samples` of them.
    """
    device, batch = prepare_training(config.learner), config.learner.batch_size
    trainer, window, feed = workplace(config.run_sections(), device, window_samples)
    bare = {"bare": _bare_step(config, device)}
    if device.type == "cuda" or config.learner.compile:
        bare["bare_compiled"] = _bare_step(config, device, compiled=True)
    whole = whole_step(trainer, feed, feed.order(0, batch, window_samples))
    steps = {"whole": whole, **{name: step for name, step in bare.items() if step}}
    spent = in_turns({name: (partial(steps_for, step, device), (os.getpid(),)) for name, step in steps.items()}, seconds, _TURNS)
    feed.close()
    per_s = {name: round(batch * done / wall_s) for name, (done, wall_s, _) in spent.items()}
    per_cpu_s = {name: round(batch * done / max(cpu_s, 1e-9)) for name, (done, _, cpu_s) in spent.items()}
    if trainer.note:
        raise DeviceError(f"the learner {trainer.note}")
    best = max(per_s.keys() - {"whole"}, key=per_s.__getitem__)
    return {
        "game": config.run.game,
        "network": f"{config.network.kind} {config.network.blocks}x{config.network.channels}",
        "device": str(device),
        "precision": trainer.precision,
        "threads": torch.get_num_threads(),
        "batch_size": batch,
        "samples_per_s": per_s["whole"],
        "samples_per_cpu_s": per_cpu_s["whole"],
        "bare": best.removeprefix("bare_") if best != "bare" else "op by op",
        "bare_samples_per_s": per_s[best],
        "bare_samples_per_cpu_s": per_cpu_s[best],
        "share_of_bare": round(per_s["whole"] / per_s[best], 3),
        "share_of_bare_op_by_op": round(per_s["whole"] / per_s["bare"], 3),
        "window_samples": window_samples,
        "window_bytes_per_sample": window.bytes_per_sample,
        "peak_rss_mb": round(peak_resident_bytes() / 1e6, 1),
    }


def workplace(sections: RunSections, device: torch.device, samples: int) -> tuple[Trainer, Window, Feed]:
    """A trainer of a run, a full window of so many random samples, and what feeds the one from the other."""
    game, config = rules(sections), sections.learner
    spec = NetSpec.of(game)
    trainer = Trainer(build(sections.network, spec, seed=0), spec, config, device, Symmetries(game, device))
    window = full_window(game, spec, samples, Columns.of(game, sections.network.auxiliary))
    return trainer, window, Prefetcher(window, Draws(0, trainer.num_symmetries, 0), device)


def full_window(game: games.Game, spec: NetSpec, samples: int, columns: Columns = NO_COLUMNS) -> Window:
    """A window of random samples in the shapes of a game, every action legal; optional columns hold zeros."""
    rng = np.random.default_rng(1)
    window = Window(game, samples, columns)
    policies = rng.dirichlet(np.ones(spec.num_actions), _CHUNK).astype(np.float16)
    masks = np.packbits(np.ones((_CHUNK, spec.num_actions), np.uint8), axis=1, bitorder="little")
    for start in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - start)
        packed = rng.integers(0, 256, (count, spec.packed_size), dtype=np.uint8)
        values = rng.uniform(-1, 1, (count, spec.value_size)).astype(np.float32)
        zeros = {name: np.zeros((count, *shape), kind) for name, (kind, shape) in columns.shapes().items()}
        window.add(Samples(packed, policies[:count], values, masks[:count], **zeros))
    return window


def whole_step(trainer: Trainer, feed: Feed, order: Order) -> Callable[[], None]:
    """What the learner does: take a batch from the window, train on it, follow it with the moving average."""

    def step() -> None:
        with feed.take(replace(order, step=trainer.step)) as batch:
            trainer.train_on(batch, 0.0)

    return step


def _bare_step(config: Config, device: torch.device, *, compiled: bool = False) -> Callable[[], None] | None:
    """The least a training loop does, on tensors that are there already, channels last; None where compiling gains nothing."""
    spec, batch, dtype = NetSpec.of(rules(config.run_sections())), config.learner.batch_size, autocast_dtype(config.learner, device)
    module = build(config.network, spec, seed=0).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if compiled:
        compile_where_faster(module, batch, dtype, dynamic=False)
        if "forward_all" not in vars(module):
            return None
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=device.type in ("cpu", "cuda"))
    planes = torch.rand(batch, spec.planes, spec.rows, spec.cols, device=device).round().contiguous(memory_format=torch.channels_last)
    scalars = torch.zeros(batch, spec.scalars, device=device)
    policies = torch.softmax(torch.randn(batch, spec.num_actions, device=device), 1)
    targets = torch.rand(batch, spec.value_size, device=device)
    legal = torch.ones(batch, spec.num_actions, dtype=torch.bool, device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            outputs = module.forward_all(planes, scalars)
        policy_loss, value_loss = losses(outputs.logits, outputs.values, policies, targets, legal)
        optimizer.zero_grad(set_to_none=True)
        (policy_loss + value_loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def steps_for(step: Callable[[], None], device: torch.device, seconds: float) -> int:
    """Takes steps for so long; how many, once the device has done them."""
    done, end_s = 0, time.monotonic() + seconds
    while not done or time.monotonic() < end_s:
        step()
        done += 1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return done
