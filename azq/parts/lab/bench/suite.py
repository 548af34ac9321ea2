"""`azq bench all`: every figure of this machine beside the bare network and beside the peers, in one run and within a time.

The parts run one after the other, each in its own process and for what the time that is really left allows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import validate_call

import azq
from azq import logs
from azq.config import Config, InferenceConfig, load, merge, parse_overrides
from azq.errors import AzqError
from azq.files import publish_file
from azq.host.devices import Wishes, detect, plan
from azq.parts.lab.bench.inference import latency, throughput
from azq.parts.lab.bench.plan import LATENCY_BATCH, PEERS, Case, Part, cases, markdown, parts, split, summary
from azq.parts.lab.bench.rig import READY_ON_GPU_S, PartProcess, rig
from azq.parts.lab.bench.selfplay import peer_figures, selfplay_figures, why_no_peer
from azq.process.apart import environment
from azq.process.source import commit

PATIENCE_S, PATIENCE = 60.0, 4.0  # a part that takes longer, and so many times its overhead beyond what it measures, is ended
LATE_S = 15.0  # and one that began in time may end so long after the time is over

log = logs.get(__name__)
Measure = Callable[[Part, Case, float, float], dict[str, Any]]  # seconds to measure, seconds until it is ended
Report = Callable[[dict[str, dict[str, Any]], dict[str, str]], object]  # figures and reasons so far, after each part
WINDOW_SAMPLES = 200_000
TINY_WINDOW = 20_000


def facts(device: str = "auto") -> dict[str, Any]:
    """The machine and the software, as a table's head wants them. Raises `ConfigError` for a device that is not there."""
    import torch

    from azq.nets.device import place

    placement = place(InferenceConfig(device=device))
    on_gpu = placement.device.type == "cuda"
    return {
        "device": str(placement.device),
        "device_name": torch.cuda.get_device_name(placement.device) if on_gpu else processor(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "precision": placement.precision,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "azq": azq.__version__,
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, or its architecture where the system does not tell."""
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def run_all(
    size: str,
    minutes: float,
    device: str = "auto",
    overrides: Sequence[str] = (),
    *,
    keep: Callable[[dict[str, Any]], object] = lambda _: None,
    measure: Measure | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Everything that fits: machine, figures by part, reasons of what has none, ratios within the run.

    `keep` gets what there is after each part, since a borrowed machine may be taken away.
    `size` is empty for the one that suits the machine. Raises `ConfigError` for a size that is none, or `overrides` that do not fit.
    """
    load(None, overrides)
    began_s = clock()
    about = facts(device)
    on_gpu = about["device"].startswith("cuda")
    size = size or ("full" if on_gpu else "small")
    which = cases(size)
    missing = {} if measure else {peer: reason for peer in PEERS if (reason := why_no_peer(peer))}
    todo = parts(size, which, on_gpu=on_gpu, peers=[peer for peer in PEERS if peer not in missing])

    def result(figures: dict[str, dict[str, Any]], reasons: dict[str, str]) -> dict[str, Any]:
        return {
            "machine": about,
            "size": size,
            "settings": list(overrides),
            "cases": [described(case) for case in which],
            "minutes": round((clock() - began_s) / 60, 2),
            "parts": figures,
            "left_out": {**missing, **reasons},
            "summary": summary(which, figures),
        }

    if not measure:
        wishes = Wishes(about["device"], (), about["device"], threads=which[0].threads)
        # As many play as in `azq up`; beside the one thread that a CPU's network has here, one.
        overrides = [f"worker.concurrency={plan(detect(), wishes).processes if on_gpu else 1}", *overrides]
        measure = partial(_in_a_process, about["device"], overrides)
    patience_s = PATIENCE_S + READY_ON_GPU_S * on_gpu
    end_s = began_s + 60 * minutes
    outcome = measured(todo, which, end_s, measure, clock, lambda *so_far: keep(result(*so_far)), patience_s=patience_s)
    return result(*outcome)


def measured(
    todo: Sequence[Part],
    which: Sequence[Case],
    end_s: float,
    measure: Measure,
    clock: Callable[[], float],
    report: Report = lambda _figures, _reasons: None,
    *,
    patience_s: float = PATIENCE_S,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Figures by part, and why others have none; after each part the rest is split again over the time that is left."""
    by_name = {case.name: case for case in which}
    figures: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    for number, part in enumerate(todo):
        seconds = split(todo[number:], end_s - clock()).get(part.name)
        if seconds is None:
            reasons[part.name] = (
                f"does not fit into the time: it needs {part.overhead_s + part.min_s:.0f} s, {max(0.0, end_s - clock()):.0f} are left"
            )
            continue
        log.info("measuring", part=part.name, seconds=round(seconds, 1))
        try:
            limit_s = min(max(patience_s, PATIENCE * part.overhead_s + 2 * seconds), end_s - clock() + LATE_S)
            figures[part.name] = measure(part, by_name[part.case], seconds, limit_s)
        except (AzqError, OSError, ValueError) as error:  # whatever it is, the other parts are to have their time
            reasons[part.name] = str(error)
            log.warning("part_failed", part=part.name, reason=str(error))
        report(figures, reasons)
    return figures, reasons


def described(case: Case) -> dict[str, Any]:
    return {**dataclasses.asdict(case), "network": case.network.model_dump(mode="json"), "params": dict(case.params)}


def write(result: dict[str, Any], folder: Path) -> None:
    """`bench.json` and `bench.md`, each whole at any moment."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("bench.json", json.dumps(result, indent=1) + "\n"), ("bench.md", markdown(result))):
        publish_file(folder / name, text.encode())


def _in_a_process(device: str, overrides: Sequence[str], part: Part, case: Case, seconds: float, limit_s: float) -> dict[str, Any]:
    """A part in its own process: it leaves no memory on a GPU behind, and may hang or die alone."""
    options: dict[str, Any] = {"num_simulations": part.num_simulations, "device": device}
    if part.kind in PEERS:
        shape = {"blocks": case.network.blocks, "channels": case.network.channels, "games": case.batch}
        return peer_figures(part.kind, seconds, limit_s, **options, **shape)
    # Without settings of azq: a part is measured as it is described.
    task = {"kind": part.kind, "case": described(case), "seconds": seconds, "overrides": list(overrides)}
    figures: dict[str, Any] = PartProcess(measure_part, environment(), **task, **options).answer(limit_s)
    return figures


@validate_call
def measure_part(kind: str, case: Case, num_simulations: int, seconds: float, device: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The figures of a part that azq itself measures; `device` is `auto` or one that torch knows."""
    at_most = LATENCY_BATCH if kind == "latency" else case.batch
    config = config_of(case, num_simulations, device, at_most, overrides)
    if kind == "selfplay":
        return selfplay_figures(config, config.run_sections(), seconds, "stream", config.worker.concurrency)
    if kind in ("network", "latency"):
        with rig(config, config.run_sections(), inference=1) as machine:
            return (throughput if kind == "network" else latency)(machine, seconds, at_most)
    from azq.parts.lab.bench.learner import training

    return training(config, seconds, TINY_WINDOW if case.learner_batch < 128 else WINDOW_SAMPLES)


def config_of(case: Case, num_simulations: int, device: str, max_batch: int, overrides: Sequence[str] = ()) -> Config:
    """The settings of a case under those of the command line: of one process that plays each group is one batch, of several half of one."""
    chosen = parse_overrides(overrides)
    processes = Config(**chosen).worker.concurrency or 1
    batch, groups = (case.batch, case.groups) if processes == 1 else (case.batch // 2, 2)
    values = {
        "run": {"game": case.game, "params": case.params},
        "network": case.network.model_dump(),
        "search": {"num_simulations": num_simulations} if num_simulations else {},
        "selfplay": {"games_in_flight": groups * batch, "groups": groups, "threads": case.threads},
        "learner": {"device": device, "batch_size": case.learner_batch},
        # One thread on a CPU: chosen by measurement, the bare network and the worker might choose differently.
        "inference": {"device": device, "max_batch": max_batch, "threads": 1},
        "worker": {"concurrency": processes},
    }
    return Config(**merge(values, chosen))
