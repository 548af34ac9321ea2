"""Who feeds whom in a fleet, computed step by step from measured figures. Pure but for reading them."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from azq import games
from azq.config import NetworkConfig, RunSections
from azq.errors import ConfigError
from azq.nets import NetSpec, Network, build
from azq.nets.network import unpack

KEPT_VERSIONS = 64  # azq.learner.publish.KEPT_IN_BROKER
WAITING_GAMES = 20_000  # selfplay.max_waiting_games
KIB = 1024


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One line of the plan."""

    what: str
    how: str
    value: float
    unit: str


def read_figures(path: Path | None = None) -> tuple[dict[str, float], dict[str, str]]:
    """Every figure by its name, and the source of each measured one."""
    document = tomllib.loads((path or files("azq.parts.cluster") / "figures.toml").read_text("utf-8"))
    measured = document["measured"]
    sources = {name: document["sources"][entry["source"]] for name, entry in measured.items()}
    return {**document["fleet"], **{name: float(entry["value"]) for name, entry in measured.items()}}, sources


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


FEW, MANY = 4, 36  # leaves of two passes: what both touch, the weights, is in neither's difference
NARROW = 2  # bytes of a number in bfloat16
GAMES = 100  # random ones, whose plies are counted


@dataclass(frozen=True, slots=True)
class Workload:
    """Of one leaf, one game, one network."""

    flops: float  # of a forward pass; a multiplication and its addition are two
    traffic: float  # bytes that the layers read and write one after the other, in bfloat16
    parameters: int
    request_bytes: int
    reply_bytes: int  # at most: logits of all actions
    plies: float  # decisions in a random game


def workload_of(sections: RunSections) -> Workload:
    """Of a run; raises `ConfigError` for a game that the core does not have."""
    if sections.run.game not in games.names():
        raise ConfigError(f"the plan knows azq's own games, and {sections.run.game} is none; `azq bench` measures any")
    game = games.load(sections.run.game, **sections.run.params)
    spec = NetSpec.of(game)
    flops, traffic, parameters = of_network(sections.network, spec)
    reply = NARROW * (spec.num_actions + spec.value_size)
    return Workload(flops, traffic, parameters, spec.packed_size, reply, _plies(game))


@lru_cache(16)
def _counted(network: str, spec: NetSpec) -> tuple[float, float, int]:
    module = build(NetworkConfig.model_validate_json(network), spec, seed=0).eval()
    few, many = (_pass(module, spec, leaves) for leaves in (FEW, MANY))
    flops, touched = ((b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True))
    return flops, NARROW * touched, sum(parameter.numel() for parameter in module.parameters())


def of_network(network: NetworkConfig, spec: NetSpec) -> tuple[float, float, int]:
    """FLOPs and bytes of a leaf, and parameters: counted in two passes, not measured."""
    return _counted(network.model_dump_json(), spec)


class _Touched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the numbers that operations read and write, each as if alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.numbers += sum(tensor.numel() for tensor in tree_leaves((args, kwargs, out)) if isinstance(tensor, torch.Tensor))
        return out


def _pass(module: Network, spec: NetSpec, leaves: int) -> tuple[int, int]:
    seen = unpack(torch.zeros((leaves, spec.packed_size), dtype=torch.uint8), spec)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*seen)
    with torch.no_grad(), _Touched() as touched:
        module(*seen)
    return counter.get_total_flops(), touched.numbers


def _plies(game: games.Game) -> float:
    luck, plies = random.Random(1), 0
    for _ in range(GAMES):
        state = game.new_initial_state()
        while not state.is_terminal():
            plies += not state.is_chance_node()
            state.apply_action(luck.choice(state.legal_actions()))
    return plies / GAMES
