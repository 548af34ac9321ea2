"""How often a player's move loses a result class on exactly solved positions: strength without an opponent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from azq import _core
from azq.arena.players import Player
from azq.arena.positions import Position
from azq.errors import IllegalActionError


@dataclass(frozen=True, slots=True)
class Grade:
    """Errors and positions, over all and by class."""

    errors: int
    positions: int
    by_class: Mapping[str, tuple[int, int]]

    @property
    def error_share(self) -> float:
        """Share of moves that lost a result class; 0 without positions."""
        return self.errors / self.positions if self.positions else 0.0


def mark(positions: Sequence[Position], actions: Sequence[int]) -> Grade:
    """Counts the errors of these actions, one per position. Pure."""
    by_class: dict[str, tuple[int, int]] = {}
    for position, action in zip(positions, actions, strict=True):
        errors, count = by_class.get(position.group, (0, 0))
        by_class[position.group] = errors + position.loses_class(action), count + 1
    return Grade(sum(errors for errors, _ in by_class.values()), len(positions), by_class)


def grade(game: _core.Game, player: Player, positions: Sequence[Position]) -> Grade:
    """Lets a player move in every position; raises `IllegalActionError` where a position is not one of this game."""
    histories = [list(position.actions) for position in positions]
    if positions and game.num_distinct_actions() != len(positions[0].values):
        raise IllegalActionError(f"positions with {len(positions[0].values)} actions do not belong to {game.name}")
    return mark(positions, player.choose(histories))


def now_ms() -> int:
    """The wall clock in milliseconds, for results."""
    return int(time.time() * 1000)
