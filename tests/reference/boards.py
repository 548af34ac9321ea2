"""Othello of any size and five in a row, written plainly: oracles for what OpenSpiel does not play."""

from __future__ import annotations

DIRECTIONS = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if (r, c) != (0, 0)]


class PlainOthello:
    """A grid of 'x' (player 0), 'o' and '.'."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.grid = [["."] * size for _ in range(size)]
        m = size // 2
        self.grid[m - 1][m - 1] = self.grid[m][m] = "o"
        self.grid[m - 1][m] = self.grid[m][m - 1] = "x"
        self.player = 0

    def flipped(self, row: int, column: int, player: int) -> list[tuple[int, int]]:
        """Cells that a placement turns over; none: it is illegal."""
        if self.grid[row][column] != ".":
            return []
        own, other = "xo"[player], "ox"[player]
        cells = []
        for dr, dc in DIRECTIONS:
            line, r, c = [], row + dr, column + dc
            while 0 <= r < self.size and 0 <= c < self.size and self.grid[r][c] == other:
                line.append((r, c))
                r, c = r + dr, c + dc
            if line and 0 <= r < self.size and 0 <= c < self.size and self.grid[r][c] == own:
                cells += line
        return cells

    def placements(self, player: int) -> list[int]:
        """Cells where a player may place."""
        return [self.size * r + c for r in range(self.size) for c in range(self.size) if self.flipped(r, c, player)]

    def legal(self) -> list[int]:
        """Placements, or the pass."""
        return self.placements(self.player) or [self.size**2]

    def over(self) -> bool:
        """Neither side can place."""
        return not self.placements(0) and not self.placements(1)

    def apply(self, action: int) -> None:
        """Places and flips, or passes."""
        if action < self.size**2:
            row, column = divmod(action, self.size)
            for r, c in [*self.flipped(row, column, self.player), (row, column)]:
                self.grid[r][c] = "xo"[self.player]
        self.player = 1 - self.player

    def lead(self) -> int:
        """Discs of player 0 less those of player 1."""
        text = str(self)
        return text.count("x") - text.count("o")

    def __str__(self) -> str:
        return "".join("".join(row) + "\n" for row in self.grid)


def longest_line(cells: set[tuple[int, int]], cell: tuple[int, int]) -> list[int]:
    """Lengths of the four lines of stones through a cell."""
    lengths = []
    for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for sign in (1, -1):
            n = 1
            while (cell[0] + sign * n * dr, cell[1] + sign * n * dc) in cells:
                length, n = length + 1, n + 1
        lengths.append(length)
    return lengths
