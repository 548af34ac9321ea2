"""Who feeds whom in a fleet, computed step by step from measured figures. Pure but for reading them."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster, Role

KEPT_VERSIONS = 64  # azq.learner.publish.KEPT_IN_BROKER
WAITING_GAMES = 20_000  # selfplay.max_waiting_games
KIB = 1024
MEASURED = "H200"  # the GPU of all figures
ASSUMED = (
    "the network is connect four's 5x128, of 30 plies and 200 simulations, in full batches: `azq bench` measures yours",
    "a GPU is to an H200 as the TFLOP/s of their data sheets: a bound, not yet measured against",
    "CPU cores a leaf, training beside inference, brokers and ledger: as measured with connect four (docs/scale.md)",
)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One line of the plan."""

    what: str
    how: str
    value: float
    unit: str


def read_figures() -> tuple[dict[str, float], dict[str, str]]:
    """Every figure by its name, and the source of each measured one."""
    document = _document()
    measured = document["measured"]
    sources = {name: document["sources"][entry["source"]] for name, entry in measured.items()}
    return {**document["fleet"], **{name: float(entry["value"]) for name, entry in measured.items()}}, sources


def _document() -> dict[str, Any]:
    return tomllib.loads((files("azq.parts.cluster") / "figures.toml").read_text("utf-8"))


def microseconds(figures: Mapping[str, float], party: str, request_bytes: float) -> float:
    """CPU of a party for one request of so many bytes, on the line through its two measured sizes."""
    small, large = figures[f"{party}_us_16kib"], figures[f"{party}_us_64kib"]
    return small + (large - small) * (request_bytes / KIB - 16) / 48


def plan(figures: Mapping[str, float]) -> list[PlanStep]:
    """The lines of the plan; each uses figures and the lines above it."""
    f = figures
    gpus, leaves = f["inference_gpus"], f["leaves_per_request"]
    request = leaves * f["request_bytes_per_leaf"]
    evaluations = gpus * f["evaluations_per_s_per_gpu"]
    requests = evaluations / leaves
    broker_us, client_us, consumer_us = (microseconds(f, party, request) for party in ("broker", "client", "consumer"))
    broker_cores = requests * broker_us / 1e6
    brokers = math.ceil(broker_cores / f["broker_use"])
    through = evaluations * (f["request_bytes_per_leaf"] + f["reply_bytes_per_leaf"]) / 1e9
    cpu = gpus * f["search_cores_per_gpu"] + requests * client_us / 1e6 + requests * consumer_us / 1e6 + broker_cores
    games = gpus * f["games_per_s_per_gpu"]
    open_games = 2 * leaves * gpus * f["search_cores_per_gpu"]
    journals = open_games / games / f["journal_s"]
    game_us = f["adopt_us_per_game"] + journals * f["journal_us_per_game"] + f["finish_us_per_game"] + f["insert_us_per_game"]
    samples = games * f["plies_per_game"]
    wanted = samples * f["samples_per_insert"]
    memory = open_games * f["sample_bytes_per_game"] + WAITING_GAMES * f["waiting_game_bytes"] + KEPT_VERSIONS * f["weights_bytes"]
    control_in = games * (f["sample_bytes_per_game"] + journals * f["journal_bytes_per_game"])
    return [
        PlanStep("evaluations", "inference GPUs x evaluations of one", evaluations / 1e6, "M/s"),
        PlanStep("requests", "evaluations / leaves a request", requests, "/s"),
        PlanStep("a request", "leaves x bytes of a leaf", request / KIB, "KiB"),
        PlanStep("broker CPU a request", "line through 16 and 64 KiB", broker_us, "us"),
        PlanStep("broker cores", "requests x CPU of one", broker_cores, "cores"),
        PlanStep("data brokers", "broker cores / share that one may be busy, rounded up", brokers, ""),
        PlanStep("evaluations a broker", "evaluations / brokers", evaluations / brokers / 1e6, "M/s"),
        PlanStep("network of a broker, each way", "evaluations x bytes of request and reply / brokers", through * 8 / brokers, "Gbit/s"),
        PlanStep("network of a GPU, in + out", "its evaluations x bytes of request and reply", 8 * through / gpus, "Gbit/s"),
        PlanStep("search cores", "inference GPUs x cores that feed one", gpus * f["search_cores_per_gpu"], "cores"),
        PlanStep("client cores", "requests x client CPU of one", requests * client_us / 1e6, "cores"),
        PlanStep("inference workers' transport", "requests x consumer CPU of one", requests * consumer_us / 1e6, "cores"),
        PlanStep("share of the CPU cores used", "(search + clients + transport + brokers) / cores", 100 * cpu / f["cpu_cores"], "%"),
        PlanStep("games", "inference GPUs x games of one", games, "/s"),
        PlanStep("open games", "a worker for each search core x 2 groups x leaves", open_games, ""),
        PlanStep("journal writes a game", "open games / games a second / journal_s", journals, ""),
        PlanStep("control plane CPU", "games x (adopt + journals + finish + insert)", games * game_us / 1e6, "cores"),
        PlanStep("control plane, bytes in", "games x (sample + journals)", control_in * 8 / 1e6, "Mbit/s"),
        PlanStep("control plane memory", "open games + 20,000 waiting games + 64 versions (store.url = redis)", memory / 1e6, "MB"),
        PlanStep("samples made", "games x plies", samples, "/s"),
        PlanStep("samples to train", "samples made x samples_per_insert", wanted / 1e6, "M/s"),
        PlanStep("training GPUs needed", "samples to train / samples of one", wanted / f["training_samples_per_s_per_gpu"], "GPUs"),
        PlanStep(
            "share of the training GPUs used",
            "needed / there",
            100 * wanted / f["training_samples_per_s_per_gpu"] / f["training_gpus"],
            "%",
        ),
        PlanStep(
            "weights to the workers",
            "inference GPUs x bytes / publish_every_s",
            gpus * f["weights_bytes"] * 8 / f["publish_every_s"] / 1e6,
            "Mbit/s",
        ),
        PlanStep(
            "gradients of a training GPU, each way",
            "2 (N - 1) / N x bytes x steps a second at full use (ring)",
            _ring(f) * 8 / 1e9,
            "Gbit/s",
        ),
    ]


def _ring(f: Mapping[str, float]) -> float:
    share = 2 * (f["training_gpus"] - 1) / f["training_gpus"]
    return share * f["weights_bytes"] * f["training_samples_per_s_per_gpu"] / f["training_batch"]


def broker_count(figures: Mapping[str, float], gpus: int) -> int:
    """Data brokers that carry the requests of so many inference GPUs."""
    return int(next(step.value for step in plan({**figures, "inference_gpus": gpus}) if step.what == "data brokers"))


def figures_of(cluster: Cluster) -> dict[str, float]:
    """Those of a cluster for its first run: connect four's as they were measured, a GPU's by the arithmetic of its data sheet.

    Raises `ConfigError` unless GPUs infer and train whose data sheet is known.
    """
    base, sections = read_figures()[0], cluster.wanted_runs()[0].sections()
    infer, train = (_gpus(cluster, role) for role in ("inference", "learner"))
    factor = _speed(infer) / sum(infer.values())
    own = {
        "inference_gpus": sum(infer.values()),
        "training_gpus": sum(train.values()),
        "cpu_cores": cluster.total("selfplay", "vcpus"),
        **{name: factor * base[name] for name in ("evaluations_per_s_per_gpu", "search_cores_per_gpu", "games_per_s_per_gpu")},
        "training_samples_per_s_per_gpu": base["training_samples_per_s_per_gpu"] * _speed(train) / sum(train.values()),
        "leaves_per_request": sections.selfplay.games_in_flight / sections.selfplay.groups,
        "journal_s": sections.selfplay.journal_s,
        "samples_per_insert": sections.learner.samples_per_insert,
        "training_batch": sections.learner.batch_size / sum(train.values()),
    }
    return {**base, **own}


def figures_or_general(cluster: Cluster) -> dict[str, float]:
    """The same, or, where nothing is known of its GPUs or its run, those of the largest that were measured."""
    try:
        return figures_of(cluster)
    except ConfigError:
        return read_figures()[0]


def _speed(gpus: Mapping[str, int]) -> float:
    """How many of the GPU that was measured they stand for."""
    sheets = _document()["gpus"]
    return float(sum(count * sheets[gpu] for gpu, count in gpus.items()) / sheets[MEASURED])


def _gpus(cluster: Cluster, role: Role) -> Counter[str]:
    """GPUs with a role by their kind."""
    sheets, counts = _document()["gpus"], Counter[str]()
    for group in cluster.of_role(role).values():
        kind = cluster.kinds[group.kind]
        if kind.gpus and kind.gpu not in sheets:
            place = f"[kinds.{group.kind!r}]"
            raise ConfigError(f'no data sheet of the GPUs of {group.kind}: say gpu = "NAME" in {place}, of {", ".join(sheets)}')
        if kind.gpus:
            counts[kind.gpu] += group.count * kind.gpus
    if not counts:
        raise ConfigError(f"cluster {cluster.name}: no GPU has the role {role!r}, and rates are known for GPUs alone; `azq bench` measures")
    return counts
