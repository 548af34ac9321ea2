"""One part of `azq bench all`, measured in a process of its own: it leaves no memory on a GPU behind, and may hang or die alone.

Run as a module it reads the part from its argument and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from azq.bench.selfplay import WARM_UP_S, selfplay_figures
from azq.bench.stream import latency, throughput
from azq.bench.suite.plan import LATENCY_BATCH, Case
from azq.config import Config, RunConfig, RunSections
from azq.process.start import run_main

WINDOW_SAMPLES = 200_000
TINY_WINDOW = 20_000


def measure(kind: str, case: Case, num_simulations: int, seconds: float, device: str) -> dict[str, Any]:
    """The figures of a part that azq itself measures; `device` is `auto` or one that torch knows."""
    config = Config()
    # One thread on a CPU: chosen by measurement, the bare network and the worker might choose differently.
    at_most = LATENCY_BATCH if kind == "latency" else case.batch
    inference = config.inference.model_copy(update={"device": device, "max_batch": at_most, "threads": 1})
    config = config.model_copy(update={"inference": inference})
    sections = sections_of(case, num_simulations, seconds)
    if kind == "selfplay":
        return selfplay_figures(config, sections, seconds, "stream")
    if kind == "network":
        return throughput(config, sections, seconds, case.batch)
    if kind == "latency":
        return latency(config, sections, seconds, LATENCY_BATCH)
    learner = sections.learner.model_copy(update={"device": device, "batch_size": case.learner_batch})
    window = TINY_WINDOW if case.learner_batch < 128 else WINDOW_SAMPLES
    of_run = {"run": sections.run, "network": sections.network, "learner": learner}
    from azq.bench.training import bench_learner

    return bench_learner(config.model_copy(update=of_run), seconds, window_samples=window)


def sections_of(case: Case, num_simulations: int, seconds: float) -> RunSections:
    """A run of the case: groups of games in turn, each one batch."""
    base = RunSections(run=RunConfig(game=case.game, params=dict(case.params)), network=case.network)
    search = base.search.model_copy(update={"num_simulations": num_simulations or base.search.num_simulations})
    selfplay = base.selfplay.model_copy(
        update={
            "games_in_flight": case.groups * case.batch,
            "groups": case.groups,
            "threads": case.threads,
            "slice_s": seconds + min(WARM_UP_S, 4 * seconds),
        }
    )
    return base.model_copy(update={"search": search, "selfplay": selfplay})


def _main() -> int:
    asked = json.loads(sys.argv[1])
    case = Case(**{**asked["case"], "network": RunSections.model_validate({"network": asked["case"]["network"]}).network})
    figures = measure(asked["kind"], case, asked["num_simulations"], asked["seconds"], asked["device"])
    Path(sys.argv[2]).write_text(json.dumps(figures), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main("bench", _main))
