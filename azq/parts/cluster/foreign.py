"""A training cluster's YAML as others write it, put into azq's settings: what became of each key, and the machines that it describes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq.config import RunSections
from azq.config.host import HostSections
from azq.config.loading import flat, to_toml
from azq.errors import ConfigError, MissingExtra
from azq.parts.cluster.cost import bill
from azq.parts.cluster.description import MachineKind, cluster_of
from azq.presets import variants
from azq.prices import catalogue

Settings = dict[str, Any]  # by setting, as `learner.batch_size`


@dataclass(frozen=True, slots=True)
class KeyMapping:
    """What became of a key: settings of azq, or nothing and why."""

    key: str
    value: Any
    settings: Settings
    note: str = ""

    def __str__(self) -> str:
        became = ", ".join(f"{name}={json.dumps(value)}" for name, value in self.settings.items()) or "left out"
        return f"{self.key} = {json.dumps(self.value)} -> {became}" + (f" ({self.note})" if self.note else "")


Rule = tuple[Callable[[Any], Settings], str]


def _as(name: str, note: str = "", **also: Any) -> Rule:
    return lambda value: {name: value, **{key.replace("__", "."): constant for key, constant in also.items()}}, note


def _dropped(note: str) -> Rule:
    return lambda value: {}, note


def _heads(*names: str) -> Callable[[Any], Settings]:
    return lambda wanted: {"network.auxiliary": list(names)} if wanted else {}


def _encoder(group: str) -> Rule:
    return _as(f"network.encoders.{group}", "a token group of beasty_bar", network__kind="structured", run__game="beasty_bar")


RULES: Mapping[str, Rule] = {
    "cluster.redis_url": _as("broker.control_url"),
    "cluster.inference_servers": _dropped("inference workers are not addressed: they drain the broker's stream, however many there are"),
    "cluster.weight_sync_frequency": _as("learner.publish_every_steps"),
    "selfplay.workers_per_node": _as("worker.concurrency"),
    "selfplay.games_per_worker": _dropped("a job is a lease on games for a time; the run ends by its own goals"),
    "mcts.num_simulations": _as("search.num_simulations"),
    "mcts.c_puct": _as("search.c_puct", search__algorithm="puct"),
    "mcts.dirichlet_alpha": _as("search.dirichlet_alpha"),
    "mcts.dirichlet_epsilon": _as("search.dirichlet_fraction"),
    "mcts.batch_size": (
        lambda leaves: {"selfplay.games_in_flight": 2 * leaves, "selfplay.groups": 2},
        "one leaf a game, two groups in turn",
    ),
    "inference.batch_size": _as("inference.max_batch"),
    "inference.batch_timeout_ms": _as("inference.deadline_ms"),
    "inference.gpus_per_server": (lambda gpus: {"inference.devices": [f"cuda:{index}" for index in range(gpus)]}, "a worker each"),
    "training.batch_size": _as("learner.batch_size"),
    "training.learning_rate": _as("learner.learning_rate"),
    "training.weight_decay": _as("learner.weight_decay"),
    "training.total_iterations": (lambda steps: {"until.steps": steps}, "an iteration is a training step"),
    "training.checkpoint_frequency": _as("learner.checkpoint_every_steps"),
    "training.eval_frequency": _as("arena.every_steps"),
    "buffer.max_size": _as("learner.max_window"),
    "buffer.min_size": _as("learner.min_window"),
    "network_config.hidden_dim": _as("network.channels", network__kind="structured"),
    "network_config.num_heads": _as("network.heads"),
    "network_config.queue_layers": _encoder("queue"),
    "network_config.bar_layers": _encoder("bar"),
    "network_config.hand_layers": _encoder("hand"),
    "network_config.fusion_layers": _as("network.blocks", "the layers over the tokens of all groups"),
    "network_config.use_dueling": (_heads("advantage"), "on values of actions: added to a policy's logits, as there, V changes nothing"),
    "network_config.use_auxiliary_heads": (_heads("margin", "hidden"), "the score's margin, what others hold"),
}


def read_foreign(path: Path) -> list[KeyMapping]:
    """Each key of such a file, in its order; raises `ConfigError` where it cannot be read, `MissingExtra` without a parser."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading YAML needs PyYAML; `pip install 'azq[cluster]'`") from None
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no sections; is it a cluster's settings?")
    return [map_key(key, value) for key, value in flat(document)]


def map_key(key: str, value: Any) -> KeyMapping:
    """What becomes of one key; one that no rule names is left out, with a note."""
    make, note = RULES.get(key, _dropped("unknown to azq"))
    try:
        return KeyMapping(key, value, make(value), note)
    except TypeError:
        raise ConfigError(f"{key}: {value!r} is no number") from None


def settings_of(mappings: Sequence[KeyMapping]) -> Settings:
    """All settings that came of it; lists for one setting are joined."""
    joined: Settings = {}
    for name, value in (item for mapping in mappings for item in mapping.settings.items()):
        joined[name] = [*joined.get(name, ()), *value] if isinstance(value, list) else value
    return joined


HOURS = 8.0  # that the cluster may last
PLAYERS_A_SERVER = 2  # machines that play, for each that infers
ROUND = 100.0  # the money that so many hours come to is rounded up to
BY_MACHINES = ("broker.control_url", "inference.devices", "worker.concurrency")  # settings that the machines stand for


def cluster_text(mappings: Sequence[KeyMapping], name: str, source: str, game: str = "") -> str:
    """The file's text. Raises `ConfigError` where no game or goal is named, or no kind of machine suits."""
    settings = settings_of(mappings)
    machines = _machines(mappings, settings)
    budget = {"hours": HOURS}
    tables = {
        "cluster": {"name": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")},
        "machines": machines,
        "budget": budget,
        "run": _run(settings, game or settings.get("run.game", ""), machines["training"]["kind"], source),
        "settings": _hosts(settings),
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


def _machines(mappings: Sequence[KeyMapping], settings: Settings) -> dict[str, Settings]:
    kinds = {name: MachineKind(**values) for name, values in catalogue()["kinds"].items()}
    hosts = {name: kind for name, kind in kinds.items() if not kind.service}
    servers = next((len(mapping.value) for mapping in mappings if mapping.key == "cluster.inference_servers"), 1)
    gpus, workers = max(1, len(settings.get("inference.devices", ()))), settings.get("worker.concurrency", 0)
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
    if not (suitable := [name for name, kind in hosts.items() if suits(kind)]):
        raise ConfigError(f"no kind of azq's catalogue has {what}; write the cluster's machines by hand (docs/cluster.md)")
    return min(suitable, key=lambda name: hosts[name].per_hour or 0.0)


def _run(translated: Settings, game: str, trains: str, source: str) -> Settings:
    """Game, preset, goal and every setting of the run; a rank for each GPU that trains."""
    if not game:
        raise ConfigError(f"{source} names no game, nor layers of one; say --game")
    until = ",".join(f"{name.partition('.')[2]}={limit:g}" for name, limit in translated.items() if name.startswith("until."))
    if not until:
        raise ConfigError(f"{source} does not say when the run ends; add training.total_iterations, for machines cost by the hour")
    presets = [name for name in ("gpu", str(translated.get("network.kind", ""))) if name in variants(game)]
    own = {name: value for name, value in translated.items() if name.partition(".")[0] in RunSections.model_fields and name != "run.game"}
    own["learner.ranks"] = catalogue()["kinds"][trains]["gpus"]
    settings = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in own.items()]
    return {"game": game, "preset": ",".join(presets), "until": until, "settings": settings}


def _hosts(settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings of all hosts, by section."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section in HostSections.model_fields and name not in BY_MACHINES:
            sections.setdefault(section, {})[key] = value
    return sections
