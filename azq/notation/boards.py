"""How the cells of a board are written, as in the Go Text Protocol, version 2 (Farneback, 2002), and boards with their cells' names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from azq import _core
from azq.errors import ConfigError

COLOURS = ("black", "white")
GO_LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # without I
ALL_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PASS = "PASS"
SWAP = "SWAP-PIECES"  # hex: the second player takes the first stone, as its mirror image


@dataclass(frozen=True, slots=True)
class Coordinates:
    """How one game writes its cells; action = size * row + column, row 0 at the top."""

    size: int
    letters: str = ALL_LETTERS
    from_bottom: bool = False  # row 1 is the lowest, as in Go
    pass_action: int | None = None
    swap_action: int | None = None

    def vertex(self, action: int) -> str:
        if action in (self.pass_action, self.swap_action):
            return PASS if action == self.pass_action else SWAP
        row, column = divmod(action, self.size)
        return f"{self.letters[column]}{self.size - row if self.from_bottom else row + 1}"

    def action(self, vertex: str) -> int | None:
        """The action of a vertex, in either case of letters; None for what is no vertex of this board."""
        text = vertex.strip().upper()
        if text == PASS:
            return self.pass_action
        column = self.letters.find(text[:1]) if text else -1
        number = int(text[1:]) if text[1:].isdecimal() and len(text) <= 3 else 0
        if not (0 <= column < self.size and 1 <= number <= self.size):
            return None
        row = self.size - number if self.from_bottom else number - 1
        return self.size * row + column


def cells_of(game: _core.Game) -> Coordinates:
    """How Othello, gomoku and hex write their cells.

    Othello: a1 at the top left. Gomoku: as Go, a1 at the bottom left, no column I. Hex: a1 at the top left, black (who is
    player 0) joins top and bottom.
    """
    _, rows, _ = game.observation_planes()
    if game.name == "othello":
        return Coordinates(rows, pass_action=rows * rows)
    if game.name == "gomoku":
        return Coordinates(rows, GO_LETTERS, from_bottom=True)
    return Coordinates(rows, swap_action=rows * rows if game.params.get("swap", False) else None)


def coordinates(game: _core.Game) -> Coordinates:
    """As `cells_of`, for GTP engines; raises `ConfigError` for a game that they do not play."""
    if game.name in ("othello", "gomoku") or (game.name == "hex" and not game.params.get("swap", False)):
        return cells_of(game)
    raise ConfigError(
        f"no GTP engine plays {game.name} {dict(game.params) or ''}; a gtp: player knows othello, gomoku and hex without swap"
    )


def labelled(game: _core.Game, state: _core.State) -> str:
    """The position's text, with the names of a board's rows and columns where moves are written by them. Pure."""
    text = str(state).rstrip("\n")
    _, rows, columns = game.observation_planes()
    lines = text.split("\n")
    if not isinstance(game, _core.Game) or len(lines) != rows or not game.action_layout():
        return text
    if game.action_layout() == "columns":
        return f"{text}\n{''.join(str(column % 10) for column in range(columns))}"
    corner, last = (state.action_to_string(action) for action in (0, columns - 1))
    if not re.fullmatch("a[0-9]+", corner) or not re.fullmatch("[a-z][0-9]+", last):
        return text
    between = " " if " " in lines[0].strip() else ""
    head = between.join(chr(ord("a") + column) for column in range(columns))
    return "\n".join([f"   {head}", *(f"{row + 1:>2} {line}" for row, line in enumerate(lines))])
