"""Weights to take home: a small trained network of each game, and a card that says what it is and how well it was measured to play.

`azq:<game>` names one wherever weights or a player are named. `ops/pretrained.py` makes both files of a game from a run. They are
licensed as azq is.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from azq.errors import NotFound, WeightsError

PREFIX = "azq:"
FOLDER = Path(__file__).parent
SUFFIX = ".safetensors"


class TrainedBy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run that a network is from, by its ledger and its processes."""

    run: str
    commit: str  # of azq, that trained it
    minutes: float  # spent running
    cpu_seconds: int  # of self-play, inference and learner
    machine: str
    games: int
    samples: int
    steps: int
    settings: list[str]  # what differs from the game's preset, as `--set` takes it


class MeasuredMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A match of the network at `num_simulations` a move; `points_95` is half of a 95 % interval."""

    opponent: str
    num_simulations: int
    games: int
    wins: int
    draws: int
    losses: int
    share: float
    points: float
    points_95: float
    unit: str
    seats: int  # the opponent took all but one
    elo: int | None = None  # over the opponent, with its 95 % interval
    elo_low: int | None = None
    elo_high: int | None = None
    gap: float | None = None  # of a game for one: our mean score over theirs with the same luck, and half of its 95 % interval
    gap_95: float | None = None


class MeasuredGrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What moves at `num_simulations` lose on graded positions; `errors`, of lost result classes, where results are certain."""

    num_simulations: int
    positions: int
    mean_loss: float
    unit: str
    errors: int | None = None
    error_share: float | None = None
    policy_loss: float | None = None  # expected, by the network's own shares


class MeasuredLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level of the play page by games of the levels against each other: Elo over the first level, `elo_95` half of its 95 % interval."""

    num_simulations: int
    temperature: float
    elo: int
    elo_95: int
    games: int


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the weights of a game are."""

    game: str
    sha256: str  # of the file beside the card
    size: int  # bytes
    version: int  # of the run's weights
    network: str  # kind and size, in words
    params: dict[str, int | float | str | bool]
    search: dict[str, Any]  # as [search] of a run's settings
    training: TrainedBy
    ledger: dict[str, int | bool]
    rounding: float  # how far half precision moved a prior or a value, at most, over positions of random games
    matches: list[MeasuredMatch] = []
    grades: list[MeasuredGrade] = []
    levels: list[MeasuredLevel] = []  # the weakest, as many as were measured


def names() -> tuple[str, ...]:
    """The games that have such weights, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def named(text: str) -> str | None:
    """The game of `azq:<game>`; None for everything else, version 40 of a run that is called azq (`azq:40`) among it: no game is 40."""
    name = text.removeprefix(PREFIX)
    return None if name == text or (name.isdecimal() and name not in names()) else name


def card(name: str) -> Card:
    """The card of a game's weights; `NotFound` naming the games that have some."""
    if name not in names():
        raise NotFound(f"azq comes with no weights of {name!r}, only of {', '.join(names())}; train some with `azq up --game {name}`")
    return msgspec.convert(tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")), Card)


def verified(name: str) -> Path:
    """The file of a game's weights; raises `NotFound` as `card`, `WeightsError` where the file is not the one that its card names."""
    wanted, path = card(name).sha256, FOLDER / f"{name}{SUFFIX}"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise WeightsError(f"weights azq:{name} cannot be read from {path}: {error.strerror}; install azq again") from None
    if digest != wanted:
        raise WeightsError(f"weights azq:{name} in {path} are damaged: their hash is {digest[:12]}, not {wanted[:12]}; install azq again")
    return path


def as_values(card: Card) -> dict[str, Any]:
    """A card as plain values."""
    values: dict[str, Any] = msgspec.to_builtins(card)
    return values
