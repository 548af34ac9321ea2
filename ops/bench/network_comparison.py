"""Networks of several presets taught from the games that a run recorded, judged on games kept apart: by samples seen and by CPU time.

Usage: network_comparison.py RUN_FOLDER OUT.json [--presets ,structured-small] [--no-advantage] [--seconds S] [--batch B]
All take the run's rules and learner settings (rate, losses); [network] is the presets'. The newest fifth of the games is kept
apart. CPU time is this process's, on one thread, of training alone.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from azq import games
from azq.config import NetworkConfig, RunSections, parse_run
from azq.host.rundir import RunDir
from azq.learner.data.batches import Batch
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build
from azq.presets import preset
from azq.replay.readers import SegmentReader
from azq.replay.samples import Columns, Samples, samples_of

ALL_HEADS = ("reply", "advantage", "margin", "hidden")
JUDGED_AT_ONCE = 2048  # samples
MOST_JUDGED = 8192


def recorded(folder: Path, sections: RunSections, most: int) -> tuple[Samples, Samples]:
    """What the older four fifths of the newest games taught, and the others, with the targets of every head that the game has."""
    game = games.load(sections.run.game, **sections.run.params)
    events = [event for _, event in SegmentReader(folder / "segments").newest(most)][::-1]
    heads = [name for name in ALL_HEADS if name in NetSpec.of(game).auxiliary]
    columns, cut = Columns.of(game, heads, sections.learner), len(events) * 4 // 5
    old, new = (samples_of(game, part, columns)[0] for part in (events[:cut], events[cut:]))
    return old, new if len(new) <= MOST_JUDGED else rows(new, np.linspace(0, len(new) - 1, MOST_JUDGED).astype(np.int64))


def rows(samples: Samples, chosen: np.ndarray) -> Samples:
    """Some of the samples, in this order."""
    columns = ((column.name, getattr(samples, column.name)) for column in fields(samples))
    found: dict[str, Any] = {name: None if column is None else column[chosen] for name, column in columns}
    return Samples(**found)


def judge(trainer: Trainer, apart: Samples) -> dict[str, float]:
    """Losses of the averaged weights on all samples kept apart."""
    parts = [apart.part(begin, begin + JUDGED_AT_ONCE) for begin in range(0, len(apart), JUDGED_AT_ONCE)]
    found = [(len(part), trainer.losses_on(part)) for part in parts]
    return {name: round(sum(count * losses[name] for count, losses in found) / len(apart), 5) for name in found[0][1]}


def teach(network: NetworkConfig, sections: RunSections, data: tuple[Samples, Samples], seconds: float, every: int) -> dict[str, Any]:
    """One network: a row of losses each `every` samples, until it has had its CPU time."""
    game = games.load(sections.run.game, **sections.run.params)
    spec, (taught, apart), config = NetSpec.of(game), data, sections.learner
    module = build(network, spec, seed=sections.run.seed)
    trainer = Trainer(module, spec, config, torch.device("cpu"))
    draw = np.random.default_rng(sections.run.seed)
    curve: list[dict[str, float]] = [{"samples": 0, "cpu_s": 0.0, **judge(trainer, apart)}]
    spent = 0.0
    while spent < seconds:
        began = time.process_time()
        for _ in range(max(1, every // config.batch_size)):
            trainer.train_on(Batch(rows(taught, draw.integers(0, len(taught), config.batch_size))), 0.0)
        spent += time.process_time() - began
        curve.append({"samples": trainer.step * config.batch_size, "cpu_s": round(spent, 2), **judge(trainer, apart)})
        print(json.dumps(curve[-1]), flush=True)
    return {"network": network.description(), "parameters": sum(one.numel() for one in module.parameters()), "curve": curve}


def main() -> None:
    """Reads the arguments, teaches one network after the other, writes what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--presets", default=",structured-small", help="variants of the game's preset; an empty one is the plain preset")
    parser.add_argument("--no-advantage", action="store_true", help="each network that has the head once more without it")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=256, help="samples of a step")
    parser.add_argument("--warmup", type=int, default=50, help="steps with a smaller learning rate")
    parser.add_argument("--games", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=16_384)
    given = parser.parse_args()
    torch.set_num_threads(1)
    recorded_as = RunDir(given.folder.parent, given.folder.name).sections()
    learner = recorded_as.learner.model_copy(update={"batch_size": given.batch, "warmup_steps": given.warmup})
    sections = recorded_as.model_copy(update={"learner": learner})
    data = recorded(given.folder, sections, given.games)
    found: dict[str, Any] = {"taught": len(data[0]), "apart": len(data[1]), "networks": {}}
    for variant in given.presets.split(","):
        network = parse_run(preset(sections.run.game, variant), variant).network
        asked = {variant or "plain": network}
        if given.no_advantage and "advantage" in network.auxiliary:
            fewer = tuple(name for name in network.auxiliary if name != "advantage")
            asked[f"{variant or 'plain'} without advantages"] = network.model_copy(update={"auxiliary": fewer})
        for name, one in asked.items():
            print(name, flush=True)
            found["networks"][name] = teach(one, sections, data, given.seconds, given.every)
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
