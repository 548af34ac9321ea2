"""How far the shipped games' runs got after how much, and what that means for another machine. Pure but for its file and cards."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from azq import pretrained
from azq.estimate.rates import SampleReuse, StageRates, hours_until


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level that a run of a game's preset reached, and where that is written."""

    level: str
    place: str
    samples: int | None = None
    games: int | None = None
    cpu_s: float | None = None
    minutes: float | None = None  # on `cores`, where samples were not counted
    cores: int | None = None
    commit: str = ""


def points_of(game: str) -> tuple[Point, ...]:
    """Those of a game with its usual parameters; none where nothing was published."""
    values = tomllib.loads((files("azq.estimate") / "published.toml").read_text("utf-8"))
    return msgspec.convert(values.get(game, ()), tuple[Point, ...])


def same_rules(game: str, params: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Why a game's curve does not count for these settings; empty where it does."""
    return "" if dict(params) == dict(usual) else f"{game} was published with {dict(usual) or 'no parameters'}, these are {dict(params)}"


def game_samples(game: str) -> float | None:
    """Samples of a game, meant over the whole run that the game's weights to take home are from; None where there are none."""
    if game not in pretrained.names():
        return None
    training = pretrained.card(game).training
    return training.samples / training.games


def hours_to(point: Point, stages: Sequence[StageRates], cores: int, reuse: SampleReuse) -> float | None:
    """Hours from nothing to the point: by its samples, else by the cores of its machine, as if a core were a core."""
    if point.samples:
        return hours_until(point.samples, stages, reuse)
    if point.minutes and point.cores:
        return point.minutes * point.cores / cores / 60
    return None
