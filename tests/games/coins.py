"""A walk over a square of coins, to the right or down, for one player; the score is what lies on the way."""

from __future__ import annotations

RIGHT, DOWN = 0, 1


class Coins:
    """Coins lie by a formula, the same in each game."""

    def __init__(self, size: int = 6) -> None:
        self.size, self.row, self.column = size, 0, 0
        self.score = coin(0, 0)

    def num_players(self) -> int:
        return 1

    def num_distinct_actions(self) -> int:
        return 2

    def scores(self) -> tuple[float, float]:
        return 0, 9 * (2 * self.size - 1)

    def current_player(self) -> int:
        return 0

    def legal_actions(self) -> list[int]:
        return [action for action, at in ((RIGHT, self.column), (DOWN, self.row)) if at < self.size - 1]

    def apply_action(self, action: int) -> None:
        self.row, self.column = (self.row + 1, self.column) if action == DOWN else (self.row, self.column + 1)
        self.score += coin(self.row, self.column)

    def is_terminal(self) -> bool:
        return self.row == self.column == self.size - 1

    def returns(self) -> list[float]:
        return [self.score]

    def observation_tensor(self, player: int) -> list[int]:
        cell = self.size * self.row + self.column
        return [int(number == cell) for number in range(self.size**2)] + [int(bit) for bit in f"{self.score:08b}"]

    def clone(self) -> Coins:
        copy = Coins(self.size)
        copy.row, copy.column, copy.score = self.row, self.column, self.score
        return copy

    def __str__(self) -> str:
        return f"row {self.row}, column {self.column}, score {self.score}"


def coin(row: int, column: int) -> int:
    return (7 * row * row + 3 * row * column + 5 * column) % 10
