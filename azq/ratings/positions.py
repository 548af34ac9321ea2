"""Graded positions: what each move there is worth. Shipped with the package for some games, written by `azq solve` into the home folder
for others, or an operator's file of JSON lines.

A line is {"actions": [3, 2]} (from the initial state, outcomes of chance included) or {"position": "<notation>"}, with
"moves": {"<action>": value, "<actions of a whole turn joined by spaces>": value} or "values": [a value or null per action],
and optionally "class" or "phase": the group it is reported under. Values are those for the player to move; with "score": true they are
of a score, not of a win, a draw or a loss.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2s
from importlib import resources
from pathlib import Path
from typing import Any

from azq.errors import ConfigError, NotFound
from azq.games.files import absolute

MAX_LINE_CHARACTERS = 1 << 20
MARGIN = 1e-9  # moves whose values differ by less are worth the same
FORM = '{"actions": [3, 2], "moves": {"4": 0.5}, "class": "opening"}'


class PositionMark(IntEnum):
    """What became of one graded position."""

    NOT_GRADED, KEPT, LOST = range(3)  # kept or lost: its result class


@dataclass(frozen=True, slots=True)
class Position:
    """A position as the actions that lead there, or as its notation, and what each move is worth to the player to move."""

    actions: tuple[int, ...]
    moves: Mapping[tuple[int, ...], float]  # the actions of a whole turn -> value
    group: str  # class name, such as BE: beginning, easy
    notation: str = ""  # where given, there are no actions
    source: str = ""  # where it was read, for errors
    score: bool = False  # whether each value is a separate result class

    @property
    def best(self) -> float:
        return max(self.moves.values())

    def loses_class(self, value: float) -> bool:
        """Whether a move of this value leads to a worse result than the best one."""
        return value < self.best - MARGIN if self.score else sign(value) < sign(self.best)

    def value(self, action: int) -> float | None:
        """What a move of one action is worth; None where it is not listed."""
        return self.moves.get((action,))


def sign(value: float) -> int:
    """The result class of a value: 1 a win, 0 a draw, -1 a loss."""
    return (value > 0) - (value < 0)


def available(game: str, params: Mapping[str, Any] | None = None, home: Path | None = None) -> bool:
    """Whether the package has positions of a game, or a home those that `azq solve` wrote."""
    return _file(game).is_file() or (home is not None and solved_file(home, game, params or {}).is_file())


def load(game: str, params: Mapping[str, Any] | None = None, home: Path | None = None) -> list[Position]:
    """All graded positions shipped for a game, class by class, else those of the home; raises `NotFound` where there are none."""
    if _file(game).is_file():
        return parse(_file(game).read_text("utf-8"), f"{game}.jsonl")
    if home is not None and available(game, params, home):
        return read(solved_file(home, game, params or {}))
    raise NotFound(f"no graded positions for {game}; `azq solve {game}` writes some where the game has one player or two and no secrets")


def solved_file(home: Path, game: str, params: Mapping[str, Any]) -> Path:
    """Where `azq solve` writes the positions of a game, parameters as they were given. A file in Python is known by its absolute path."""
    whole = json.dumps([absolute(game), sorted(params.items())])
    return (
        home / "positions" / f"{re.sub(r'[^a-z0-9]+', '-', game.lower())[-40:].strip('-')}-{blake2s(whole.encode()).hexdigest()[:8]}.jsonl"
    )


def read(path: Path) -> list[Position]:
    """All positions of a file; raises `ConfigError` naming file, line and remedy."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"positions file {path} cannot be read: {why}; give a file of JSON lines such as {FORM}") from None
    positions = parse(text, str(path))
    if not positions:
        raise ConfigError(f"positions file {path} is empty; give a line such as {FORM} for each position")
    return positions


def parse(text: str, source: str) -> list[Position]:
    """The positions of JSON lines, blank ones left out; raises `ConfigError` naming source, line and remedy. Pure."""
    return [_position(line, f"{source} line {number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()]


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


def _position(line: str, source: str) -> Position:
    try:
        row = json.loads(line) if len(line) <= MAX_LINE_CHARACTERS else None
        if not isinstance(row, dict):
            raise TypeError
        actions, notation = row.get("actions"), row.get("position", "")
        moves = _moves(row)
        group = str(row.get("class", row.get("phase", "")))
        if (actions is None) == (not notation) or not isinstance(notation, str):
            raise ValueError('it has either "actions" or "position"')
        score = row.get("score", False)
        if type(score) is not bool:
            raise ValueError('"score" is true or false')
        return Position(tuple(_action(action) for action in actions or ()), moves, group, notation, source, score)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = f": {error}" if type(error) is ValueError else ""
        raise ConfigError(f"{source} is no graded position{reason}; write it as {FORM}") from None


def _moves(row: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    if "moves" in row:
        moves = {tuple(int(word) for word in key.split()): _value(value) for key, value in row["moves"].items()}
    else:
        moves = {(action,): _value(value) for action, value in enumerate(row.get("values", ())) if value is not None}
    if not moves or () in moves:
        raise ValueError('"moves" or "values" must grade one move at least, and none without actions')
    return moves


def _action(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError('"actions" holds whole numbers from 0')
    return value


def _value(value: Any) -> float:
    if type(value) not in (int, float) or not -1e9 < value < 1e9:
        raise ValueError(f"a value is a number, not {value!r}")
    return float(value)


def _file(game: str) -> resources.abc.Traversable:
    return resources.files("azq.ratings") / "data" / f"{game}.jsonl"
