"""The figures of one cluster: its GPUs by their data sheets, its run by its network, and shares that were measured."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from azq.errors import ConfigError
from azq.parts.cluster.arithmetic import PlanStep, Workload, plan, read_figures, workload_of
from azq.parts.cluster.description import Cluster, Role

BYTES_A_PARAMETER = 4  # of published weights


@dataclass(frozen=True, slots=True)
class DataSheet:
    """A GPU by its data sheet."""

    flops: float  # a second, bfloat16 on tensor cores without sparsity
    bandwidth: float  # bytes a second


@dataclass(frozen=True, slots=True)
class Reference:
    """What the figures were measured with, and the shares of a data sheet that follow from it."""

    workload: Workload
    arithmetic: float
    bandwidth: float


def read_gpus() -> tuple[dict[str, DataSheet], Reference]:
    """The data sheets, and what was measured on one of them."""
    counts = tomllib.loads((files("azq.parts.cluster") / "figures.toml").read_text("utf-8"))
    gpus = {name: DataSheet(sheet["tflops"] * 1e12, sheet["gb_per_s"] * 1e9) for name, sheet in counts["gpus"].items()}
    at = counts["reference"]
    gpu, figures = gpus[at["gpu"]], read_figures()[0]
    load = Workload(at["flops"], at["traffic"], 0, 0, 0, figures["plies_per_game"])
    arithmetic = at["matmul_tflops"] * 1e12 / gpu.flops
    left_s = 1 / figures["evaluations_per_s_per_gpu"] - load.flops / (arithmetic * gpu.flops)
    return gpus, Reference(load, arithmetic, load.traffic / left_s / gpu.bandwidth)


def leaf_s(gpu: DataSheet, load: Workload, measured: Reference) -> tuple[float, float]:
    """Seconds of one leaf in a full batch: arithmetic, and memory, which follow each other."""
    return load.flops / (measured.arithmetic * gpu.flops), load.traffic / (measured.bandwidth * gpu.bandwidth)


def figures_of(cluster: Cluster) -> tuple[dict[str, float], list[str]]:
    """What one unit of this cluster does for its first run, and the assumptions behind it.

    Raises `ConfigError` unless GPUs infer and train whose data sheet is known, or for a game of somebody's own.
    """
    gpus, measured = read_gpus()
    base, run = read_figures()[0], cluster.wanted_runs()[0]
    sections = run.sections()
    load = workload_of(sections)
    infer, train = (_gpus(cluster, role, gpus) for role in ("inference", "learner"))
    total = sum(infer.values())
    rates = {name: 1 / sum(leaf_s(gpus[name], load, measured)) for name in infer | train}
    rate = sum(count * rates[name] for name, count in infer.items()) / total
    # By connect four's search, the only one that was measured beside a GPU.
    cores = base["search_cores_per_gpu"] / base["evaluations_per_s_per_gpu"] * rate
    ratio = base["training_samples_per_s_per_gpu"] / base["evaluations_per_s_per_gpu"]
    (trainer,) = train
    own = {
        "inference_gpus": total,
        "training_gpus": sum(train.values()),
        "cpu_cores": cluster.total("selfplay", "vcpus"),
        "evaluations_per_s_per_gpu": rate,
        "search_cores_per_gpu": cores,
        "plies_per_game": load.plies,
        "games_per_s_per_gpu": rate / (load.plies * sections.search.num_simulations),
        "training_samples_per_s_per_gpu": ratio * rates[trainer],
        "request_bytes_per_leaf": load.request_bytes,
        "reply_bytes_per_leaf": load.reply_bytes,
        "leaves_per_request": sections.selfplay.games_in_flight / sections.selfplay.groups,
        "journal_s": sections.selfplay.journal_s,
        "samples_per_insert": sections.learner.samples_per_insert,
        "training_batch": sections.learner.batch_size / sum(train.values()),
        "weights_bytes": BYTES_A_PARAMETER * load.parameters,
    }
    return {**base, **own}, _assumptions(cluster, load, rates, measured)


def figures_or_general(cluster: Cluster) -> dict[str, float]:
    """The same, or, where nothing is known of its GPUs or its run, those of the largest that were measured."""
    try:
        return figures_of(cluster)[0]
    except ConfigError:
        return read_figures()[0]


def expected(cluster: Cluster) -> tuple[list[PlanStep], list[str]]:
    """What such a cluster does, step by step, and by which assumptions; raises as `figures_of`."""
    figures, assumed = figures_of(cluster)
    return plan(figures), assumed


def _gpus(cluster: Cluster, role: Role, sheets: Mapping[str, DataSheet]) -> dict[str, int]:
    """GPUs with a role by their kind."""
    counts: dict[str, int] = {}
    for group in cluster.of_role(role).values():
        kind = cluster.kinds[group.kind]
        if kind.gpus and kind.gpu not in sheets:
            raise ConfigError(
                f'no data sheet of the GPUs of {group.kind}: say gpu = "NAME" in [kinds.{group.kind!r}], of {", ".join(sheets)}'
            )
        if kind.gpus:
            counts[kind.gpu] = counts.get(kind.gpu, 0) + group.count * kind.gpus
    if not counts:
        raise ConfigError(f"cluster {cluster.name}: no GPU has the role {role!r}, and rates are known for GPUs alone; `azq bench` measures")
    return counts


def _assumptions(cluster: Cluster, load: Workload, rates: Mapping[str, float], measured: Reference) -> list[str]:
    gpus, run = read_gpus()[0], cluster.wanted_runs()[0]
    return [
        f"run {run.name}, counted: {load.flops / 1e6:,.1f} MFLOP, {load.traffic / 1e6:,.2f} MB of memory a leaf, {load.request_bytes} "
        f"bytes there and {load.reply_bytes} back; {load.plies:.1f} plies, of {run.game} played at random",
        *(
            f"{name}: {rate:,.0f} leaves/s, by its data sheet ({gpus[name].flops / 1e12:g} TFLOP/s, {gpus[name].bandwidth / 1e9:g} GB/s) "
            f"and {measured.arithmetic:.2f} and {measured.bandwidth:.2f} of it, as one H200 was measured to reach"
            for name, rate in rates.items()
        ),
        "batches are full, launches and waits cost nothing, every simulation is an evaluation: a bound, not yet measured against",
        "CPU cores a leaf, training beside inference, brokers and ledger: as measured with connect four (docs/scale.md)",
    ]
