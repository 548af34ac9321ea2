"""A cluster's file from another system's settings, with what those do not say: which machines, and what ends them. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from azq.cluster.cost import bill
from azq.cluster.description import MachineKind, cluster_of
from azq.cluster.foreign import Fate, Settings, settings_of
from azq.config import RunSections
from azq.config.host import HostSections
from azq.config.loading import to_toml
from azq.errors import ConfigError
from azq.presets import variants
from azq.prices import catalogue

HOURS = 8.0  # that the cluster may last
PLAYERS_A_SERVER = 2  # machines that play, for each that infers
ROUND = 100.0  # the money that so many hours come to is rounded up to
BY_MACHINES = ("broker.control_url", "inference.devices", "worker.concurrency")  # settings that the machines stand for


def cluster_text(fates: Sequence[Fate], name: str, source: str, game: str = "") -> str:
    """The file's text. Raises `ConfigError` where no game or goal is named, or no kind of machine suits."""
    said = settings_of(fates)
    machines = _machines(fates, said)
    budget = {"hours": HOURS}
    tables = {
        "cluster": {"name": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")},
        "machines": machines,
        "budget": budget,
        "run": _run(said, game or said.get("run.game", ""), machines["training"]["kind"], source),
        "settings": _hosts(said),
    }
    budget["money"] = math.ceil(bill(cluster_of(tables, source), HOURS).total / ROUND) * ROUND
    head = (
        f"# Translated from {source}, which does not say the machines: inference has azq's cheapest kind with so many GPUs, self-play\n"
        f"# the cheapest with so many cores, {PLAYERS_A_SERVER} for each that infers, training the most GPU memory; nor the budget.\n"
    )
    return head + "\n".join(_a_setting_a_line(line) for line in to_toml(tables).split("\n"))


def _a_setting_a_line(line: str) -> str:
    before, mark, rest = line.partition("settings = [")
    if before or not mark:
        return line
    items = rest.removesuffix("]").replace('", "', '",\n    "')
    return f"{mark}\n    {items},\n]"


def _machines(fates: Sequence[Fate], said: Settings) -> dict[str, Settings]:
    kinds = {name: MachineKind(**values) for name, values in catalogue()["kinds"].items()}
    hosts = {name: kind for name, kind in kinds.items() if not kind.service}
    servers = next((len(fate.value) for fate in fates if fate.key == "cluster.inference_servers"), 1)
    gpus, workers = max(1, len(said.get("inference.devices", ()))), said.get("worker.concurrency", 0)
    plays = _cheapest(hosts, f"more than {workers} cores and no GPU", lambda kind: not kind.gpus and kind.vcpus > workers)
    infers = _cheapest(hosts, f"{gpus} GPUs", lambda kind: kind.gpus >= gpus)
    trains = max(hosts, key=lambda kind: hosts[kind].gpus * hosts[kind].gpu_memory_gb)
    return {
        "selfplay": {"kind": plays, "count": PLAYERS_A_SERVER * servers, "roles": ["selfplay"], "concurrency": workers},
        "inference": {"kind": infers, "count": servers, "roles": ["inference", "eval"]},
        "training": {"kind": trains, "roles": ["learner", "rank", "daemon"]},
        **{kind.service: {"kind": name, "roles": [kind.service]} for name, kind in kinds.items() if kind.service},
    }


def _cheapest(hosts: dict[str, MachineKind], what: str, suits: Callable[[MachineKind], bool]) -> str:
    if not (found := [name for name, kind in hosts.items() if suits(kind)]):
        raise ConfigError(f"no kind of azq's catalogue has {what}; write the cluster's machines by hand (docs/cluster.md)")
    return min(found, key=lambda name: hosts[name].per_hour or 0.0)


def _run(said: Settings, game: str, trains: str, source: str) -> Settings:
    """Game, preset, goal and every setting of the run; a rank for each GPU that trains."""
    if not game:
        raise ConfigError(f"{source} names no game, nor layers of one; say --game")
    until = ",".join(f"{name.partition('.')[2]}={limit:g}" for name, limit in said.items() if name.startswith("until."))
    if not until:
        raise ConfigError(f"{source} does not say when the run ends; add training.total_iterations, for machines cost by the hour")
    presets = [name for name in ("gpu", str(said.get("network.kind", ""))) if name in variants(game)]
    own = {name: value for name, value in said.items() if name.partition(".")[0] in RunSections.model_fields and name != "run.game"}
    own["learner.ranks"] = catalogue()["kinds"][trains]["gpus"]
    settings = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in own.items()]
    return {"game": game, "preset": ",".join(presets), "until": until, "settings": settings}


def _hosts(said: Settings) -> dict[str, dict[str, Any]]:
    """Settings of all hosts, by section."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in said.items():
        section, _, key = name.partition(".")
        if section in HostSections.model_fields and name not in BY_MACHINES:
            found.setdefault(section, {})[key] = value
    return found
