"""Self-play as it is in a run, all processes counted, and beside it what a user would pick instead, on the same machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from azq import _core, games, metrics
from azq.actor import Arenas, Progress, SelfPlay, Slice
from azq.config import Config, NetworkConfig, RunSections, dump_run, load, parse_run
from azq.errors import EvaluationTimeout, MissingExtra, NotFound
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.parts.lab.bench.rig import RUN, PartProcess, Rig, await_start, changed, last_words, published, rig, rules, start_together
from azq.phases import CPU, DEVICE, Phases, of_heartbeat, part
from azq.presets import preset as preset_of
from azq.process import spans
from azq.process.proc import cpu_s, peak_resident_bytes
from azq.process.start import PYTHON, child_environment
from azq.search.search import exploring
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job

if TYPE_CHECKING:
    from azq.inference.ask.local import LocalEvaluator

SIMULATIONS = 200
NETWORK = NetworkConfig(kind="resnet", blocks=3, channels=32)
LEASE_S = 60.0
GPU_FORWARD = DEVICE + "forward"
WARM_UP_S = 5.0
UNIFORM_TREES, UNIFORM_CHUNK = 256, 200_000  # of the search alone; simulations between two looks at the clock
PEER_PACKAGES = {"pgx": ("jax", "pgx", "mctx"), "openspiel": ("pyspiel", "open_spiel")}
PEERS_SCRIPT = Path(os.environ.get("AZQ_PEERS_SCRIPT", Path(__file__).parents[4] / "ops" / "bench" / "peers.py"))  # a wheel has it not


def bench_search(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Simulations per CPU-second of PUCT and Gumbel with the core's own evaluator; the run's other search settings as they are."""
    figures = {algorithm: _uniform_rate(config, game, algorithm, seconds / 2) for algorithm in ("puct", "gumbel")}
    chosen = config.search.algorithm
    return {
        "game": game,
        "num_simulations": SIMULATIONS,
        "algorithm": chosen,
        "simulations_per_cpu_s": figures[chosen],
        **{f"simulations_per_cpu_s_{name}": rate for name, rate in figures.items()},
    }


def _uniform_rate(config: Config, game: str, algorithm: str, seconds: float) -> float:
    settings = config.search.model_copy(update={"algorithm": algorithm, "num_simulations": SIMULATIONS})
    search = _core.Search(games.load(game), exploring(settings), num_slots=UNIFORM_TREES, seed=1)
    search.run_uniform(UNIFORM_CHUNK)
    done, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        done += search.run_uniform(UNIFORM_CHUNK)
    return done / spent


def bench_selfplay(config: Config, *, seconds: float, game: str, evaluator: str, preset: bool = False) -> dict[str, Any]:
    """Simulations, evaluations and games per CPU-second of worker, broker and inference together."""
    sections = parse_run(preset_of(game), f"the preset of {game}") if preset else sections_for(config, game)
    sections = changed(sections, selfplay={"evaluator": "stream"})
    spans.start(config.tracing, "bench")
    return selfplay_figures(config, sections, seconds, evaluator, config.worker.concurrency or 1)


def selfplay_figures(config: Config, sections: RunSections, seconds: float, evaluator: str, processes: int = 1) -> dict[str, Any]:
    """The same for any run's settings, with so many processes that play, of which this one is one."""
    with rig(config, sections, inference=evaluator == "stream") as machine:
        done, spent_s, phases = played(machine, evaluator, seconds, processes)
        served = next((beat.rates for beat in machine.beats()), {})  # what the worker said last: it served until now
    cores = part(served, CPU)
    network_s = done["network_s"] + done["workers_s"] * cores.get("forward", 0.0) / max(1e-9, sum(cores.values()))
    wall_s, evaluations, simulations = done["wall_s"], done["evaluations"], done["simulations"]
    lookups = max(1, done["cache_lookups"])
    return {
        "game": sections.run.game,
        "evaluator": evaluator,
        "algorithm": sections.search.algorithm,
        "num_simulations": sections.search.num_simulations,
        "network": f"{sections.network.blocks}x{sections.network.channels}",
        "network_kind": sections.network.kind,
        "processes": processes,
        "threads": sections.selfplay.threads,
        "simulations_per_cpu_s": round(simulations / spent_s, 1),
        "evaluations_per_cpu_s": round(evaluations / spent_s, 1),
        "games_per_cpu_min": round(60 * done["games"] / spent_s, 2),
        "network_cpu_share": round(network_s / spent_s, 3),
        "search_cpu_share": round(done["search_s"] / spent_s, 3),
        "mean_batch": round(evaluations / max(1, done["requests"]), 1),
        "simulations_per_evaluation": round(simulations / max(1, evaluations), 3),
        # Shares of leaves that needed no separate evaluation, and of simulations that had no leaf.
        "cache_hit_share": round(done["cache_hits"] / lookups, 4),
        "merged_share": round(done["merged_leaves"] / lookups, 4),
        "exact_share": round(done["exact_simulations"] / max(1, simulations), 4),
        "peak_rss_mb": round(peak_resident_bytes() / (1 << 20), 1),
        "simulations_per_s": round(simulations / wall_s, 1),
        "evaluations_per_s": round(evaluations / wall_s, 1),
        "games_per_s": round(done["games"] / wall_s, 3),
        "cpu_cores": round(spent_s / wall_s, 2),
        "inference_mean_batch": round(served.get(metrics.MEAN_BATCH, 0.0), 1),
        "request_ms": round(served.get(metrics.EVAL_LATENCY_MS, 0.0), 2),
        "network_busy": round(served.get(metrics.NETWORK_BUSY, 0.0), 3),
        **({"gpu_busy": served[GPU_FORWARD]} if GPU_FORWARD in served else {}),
        "selfplay_phases": phases,
        "inference_phases": of_heartbeat(served),
    }


def played(
    machine: Rig, evaluator: str, seconds: float, processes: int = 1, warm_up_s: float = WARM_UP_S
) -> tuple[Mapping[str, float], float, dict[str, float]]:
    """What self-play in so many processes did in the last `seconds` of its time, the CPU-seconds of all processes, shares of phases."""
    with beside(machine, evaluator, seconds, processes - 1, warm_up_s) as others:
        before, after, phases = readings_of(machine, evaluator, seconds, warm_up_s)
        done = together([done_between(before, after), *(other.answer(LEASE_S) for other in others)])
    workers_s = after.workers_s - before.workers_s
    return done | {"workers_s": workers_s}, done["own_s"] + workers_s + after.brokers_s - before.brokers_s, phases


def done_between(before: Reading, after: Reading) -> dict[str, float]:
    """What one process did between two readings: counts, and seconds; and its games at the later one."""
    start, progress = before.progress, after.progress
    counts = {name: float(count - start.counts.get(name, 0)) for name, count in progress.counts.items()}
    seconds = {name: getattr(after, name) - getattr(before, name) for name in ("wall_s", "own_s", "network_s")}
    return counts | seconds | {"search_s": progress.search_s - start.search_s, "open_games": float(progress.open_games)}


def together(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What processes did side by side, in the time that the first one was measured for; what none of them counted is 0."""
    done, wall_s = defaultdict[str, float](float), parts[0]["wall_s"]
    for part_done in parts:
        for name, value in part_done.items():
            done[name] += value * wall_s / part_done["wall_s"]
    done["wall_s"] = wall_s
    return done


@contextlib.contextmanager
def beside(machine: Rig, evaluator: str, seconds: float, count: int, warm_up_s: float) -> Iterator[Sequence[PartProcess]]:
    """So many further processes that play as this one does, from now on; each answers what it did."""
    env = child_environment(in_roles(machine.config)("worker"), "worker")
    task = {"sections": dump_run(machine.sections), "evaluator": evaluator, "seconds": seconds, "warm_up_s": warm_up_s}
    others = [PartProcess(play_beside, env, **task) for _ in range(count)]
    try:
        start_together(others, seconds, warm_up_s)
        yield others
    finally:
        for other in others:
            other.end()


def play_beside(sections: dict[str, Any], evaluator: str, seconds: float, warm_up_s: float) -> dict[str, float]:
    """Plays in the rig that the environment names, once all are ready."""
    config = load()
    with connect(config.broker.control_url) as control:
        weights = published(config, control) if evaluator == "local" else b""
        machine = Rig(config, parse_run(sections, "the benchmark's settings"), control, Ledger(control), weights, (), ())
        await_start()
        before, after, _ = readings_of(machine, evaluator, seconds, warm_up_s)
    return done_between(before, after)


def sections_for(config: Config, game: str) -> RunSections:
    """Those of the settings; of these, network and simulations only where they were set."""
    search = {} if "num_simulations" in config.search.model_fields_set else {"num_simulations": SIMULATIONS}
    network = config.network if "network" in config.model_fields_set else NETWORK
    return changed(config.run_sections(), run={"game": game}, search=search, network=network)


class Reading(NamedTuple):
    """How far self-play was at a moment, and CPU-seconds until then."""

    progress: Progress
    wall_s: float
    own_s: float  # of all threads of this process
    workers_s: float
    brokers_s: float
    network_s: float = 0.0  # of forward passes in this process

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return self.own_s + self.workers_s + self.brokers_s


def readings_of(machine: Rig, kind: str, seconds: float, warm_up_s: float = WARM_UP_S) -> tuple[Reading, Reading, dict[str, float]]:
    """Plays one slice: the readings around the last `seconds` of it, start-up left out, and the shares of its phases."""
    sections = changed(machine.sections, selfplay={"slice_s": seconds + warm_up_s})
    ledger, selfplay = machine.ledger, sections.selfplay
    view = ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=selfplay.games_in_flight, slice_s=selfplay.slice_s))
    lease = ledger.claim(view.job.job_id, view.attempt, "bench", LEASE_S)
    if lease is None:
        raise NotFound("the benchmark's own job could not be claimed")
    phases = Phases()
    readings: list[Reading] = []

    def report(progress: Progress) -> None:
        phases.shares()  # its window moves on as in a worker, past the start
        own_s, workers_s, brokers_s = (cpu_s(pids) for pids in ((os.getpid(),), machine.workers, machine.brokers))
        network_s = getattr(evaluator, "network_cpu_s", 0.0)
        readings.append(Reading(dataclasses.replace(progress), time.monotonic(), own_s, workers_s, brokers_s, network_s))

    opened = _local(machine) if kind == "local" else machine.client(resend_after_s=5.0, phases=phases)
    with opened as evaluator:
        SelfPlay(ledger, Slice(lease, sections, rules(sections)), evaluator, Arenas(), report=report, phases=phases).run()
    last = readings[-2] if len(readings) > 2 else readings[-1]
    first = next((reading for reading in readings if reading.wall_s >= last.wall_s - seconds), readings[0])
    if first.cpu_s == last.cpu_s or first.wall_s == last.wall_s:
        raise EvaluationTimeout(f"self-play of {sections.run.game} reported once in {seconds:.0f} s: too short a time to measure it")
    return first, last, phases.shares()


def _local(machine: Rig) -> contextlib.closing[LocalEvaluator]:
    from azq.inference.ask.local import LocalEvaluator

    return contextlib.closing(LocalEvaluator.from_bytes(rules(machine.sections), machine.weights, machine.config.inference))


def why_no_peer(name: str) -> str:
    """Why a peer cannot be measured here; empty where it can."""
    if not PEERS_SCRIPT.is_file():
        return f"{PEERS_SCRIPT.name} is not installed; run from a checkout"
    wanted = PEER_PACKAGES[name]
    probe = subprocess.run([*_python(), "-c", f"import {', '.join(wanted)}"], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else f"{' and '.join(wanted)} not installed; pip install 'azq[bench]'"


def peer_figures(name: str, seconds: float, limit_s: float, **setting: int | str) -> dict[str, Any]:
    """One peer in another process; `AZQ_PEERS_PYTHON` names an interpreter that has the extra, where this one has not.

    `setting` are the script's options. Raises `MissingExtra` where it does not run, `EvaluationTimeout` where it does not end.
    """
    device = str(setting.pop("device", "cpu")).partition(":")[0]
    options = [word for key, value in setting.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    command = [*_python(), str(PEERS_SCRIPT), name, str(seconds), *options, "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise EvaluationTimeout(f"peer {name} was ended after {limit_s:.0f} s without an answer") from None
    if done.returncode:
        raise MissingExtra(f"peer {name} does not run here ({last_words(done.stderr)}); install the extra: pip install 'azq[bench]'")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _python() -> tuple[str, ...]:
    return (named, "-P") if (named := os.environ.get("AZQ_PEERS_PYTHON")) else PYTHON
