"""Positions whose every move is known exactly, shipped with the package for the games that have them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from azq.errors import NotFound


@dataclass(frozen=True, slots=True)
class Position:
    """A position as the actions that lead there, and what each action is worth to the player to move: -1, 0, 1, None if illegal."""

    actions: tuple[int, ...]
    values: tuple[int | None, ...]
    group: str  # class name, such as BE: beginning, easy

    @property
    def best(self) -> int:
        """The result under perfect play."""
        return max(value for value in self.values if value is not None)

    def loses_class(self, action: int) -> bool:
        """True where the action gives away a win or a draw, or is illegal."""
        value = self.values[action] if 0 <= action < len(self.values) else None
        return value is None or value < self.best


def available(game: str) -> bool:
    """Whether a game has graded positions."""
    return _file(game).is_file()


def load(game: str) -> list[Position]:
    """All graded positions of a game, class by class; raises `NotFound` where it has none."""
    if not available(game):
        raise NotFound(f"no graded positions for {game}; only matches can compare its players")
    rows = (json.loads(line) for line in _file(game).read_text("utf-8").splitlines())
    return [Position(tuple(row["actions"]), tuple(row["values"]), row["class"]) for row in rows]


def choose(positions: Sequence[Position], count: int, seed: int) -> list[Position]:
    """`count` positions, the classes in equal shares, always the same ones for the same seed; all where there are not more."""
    if count >= len(positions):
        return list(positions)
    groups: dict[str, list[Position]] = {}
    for position in positions:
        groups.setdefault(position.group, []).append(position)
    for name, members in groups.items():
        random.Random(f"{seed}:{name}").shuffle(members)
    dealt = (members[row] for row in range(len(positions)) for members in groups.values() if row < len(members))
    return [position for position, _ in zip(dealt, range(count), strict=False)]


def _file(game: str) -> resources.abc.Traversable:
    return resources.files("azq.arena") / "data" / f"{game}.jsonl"
