"""Settings that learn each game: one file for two cores, others over it for larger machines."""

from __future__ import annotations

import importlib.resources
import tomllib
from typing import Any

from azq.config import merge
from azq.errors import ConfigError


def preset(game: str, variant: str = "") -> dict[str, Any]:
    """The settings that learn this game on two cores, or its `variant` over them; only the game's name where there is no preset.

    Raises `ConfigError` naming the variants of the game where there is no such one.
    """
    folder = importlib.resources.files("azq.presets")
    base = folder / ("python.toml" if ":" in game else f"{game}.toml")
    values = tomllib.loads(base.read_text("utf-8")) if base.is_file() else {"run": {"game": game}}
    values["run"]["game"] = game
    if not variant:
        return values
    overlay = folder / f"{game}-{variant}.toml"
    if not overlay.is_file():
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(f"{game}-"))
        known = ", ".join(name.removeprefix(f"{game}-").removesuffix(".toml") for name in names)
        raise ConfigError(f"{game} has no preset {variant!r}; it has: {known or 'only the one for two cores'}")
    return merge(values, tomllib.loads(overlay.read_text("utf-8")))
