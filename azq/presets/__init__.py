"""Settings that learn each game: one file for two cores, others over it for larger machines; and, for any game, files of machines.

What a file has under `[host]` are settings of the host that runs it. They do not travel with a run, and lie below the host's own file.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Collection
from typing import Any

from azq.config import merge
from azq.errors import ConfigError, meant

HOST = "host"
BOX = "box-"  # begins the names of machines; one stands over the game's `gpu` where no other variant is named with it


def preset(game: str, variant: str = "") -> dict[str, Any]:
    """The settings of a run that learns this game on two cores, or its `variant` over them, or several (`sprint,box-8gpu`).

    Only the game's name where there is no preset. Raises `ConfigError` naming the variants of the game where there is no such one.
    """
    return {name: section for name, section in _layered(game, variant).items() if name != HOST}


def host_preset(game: str, variant: str = "") -> dict[str, Any]:
    """The host's settings that go with it; raises as `preset`."""
    return dict(_layered(game, variant).get(HOST, {}))


def variants(game: str) -> tuple[str, ...]:
    """What may be named over the game's own preset."""
    return tuple(_variants(game))


def for_gpus(game: str, variant: str) -> bool:
    """Whether such a preset is for machines with GPUs; a game that has none for them is played with any."""
    available = _variants(game)
    return "gpu" not in available or any(name == "gpu" or name.startswith(BOX) for name in _names(variant, available))


def _variants(game: str) -> dict[str, str]:
    """Files by the name of their variant: the game's, and those of machines."""
    kind = "python" if ":" in game else game
    files = sorted(entry.name.removesuffix(".toml") for entry in importlib.resources.files("azq.presets").iterdir())
    own = {name.removeprefix(f"{kind}-"): name for name in files if name.startswith(f"{kind}-")}
    return own | {name: name for name in files if name.startswith(BOX)}


def _layered(game: str, variant: str) -> dict[str, Any]:
    folder = importlib.resources.files("azq.presets")
    kind = "python" if ":" in game else game
    base = folder / f"{kind}.toml"
    values = tomllib.loads(base.read_text("utf-8")) if base.is_file() else {"run": {"game": game}}
    values["run"]["game"] = game
    available = _variants(game)
    for name in _names(variant, available):
        if name not in available:
            raise ConfigError(f"{game} has no preset {name!r}; it has: {', '.join(available)}{meant(name, available)}")
        values = merge(values, tomllib.loads((folder / f"{available[name]}.toml").read_text("utf-8")))
    return values


def _names(variant: str, available: Collection[str]) -> list[str]:
    names = [name.strip() for name in variant.split(",")] if variant else []
    only_boxes = names and all(name.startswith(BOX) for name in names)
    return ["gpu", *names] if only_boxes and "gpu" in available else names
