"""2048 in plain Python, by lists: what the core's rules are compared with."""

from __future__ import annotations

from azq._core import CHANCE_PLAYER, TERMINAL_PLAYER

UP, RIGHT, DOWN, LEFT = range(4)


def slid(line: list[int]) -> tuple[list[int], int]:
    """A line of tiles after all slid to its beginning, and what was scored."""
    tiles, done, scored = [tile for tile in line if tile], [], 0
    while tiles:
        if len(tiles) > 1 and tiles[0] == tiles[1]:
            done.append(2 * tiles[0])
            scored += 2 * tiles[0]
            tiles = tiles[2:]
        else:
            done.append(tiles.pop(0))
    return done + [0] * (len(line) - len(done)), scored


def moved(board: list[list[int]], action: int) -> tuple[list[list[int]], int]:
    """Rows from the top after a move, and what was scored."""
    lines = [list(column) for column in zip(*board, strict=True)] if action in (UP, DOWN) else [list(row) for row in board]
    if action in (RIGHT, DOWN):
        lines = [line[::-1] for line in lines]
    pairs = [slid(line) for line in lines]
    lines = [line[::-1] if action in (RIGHT, DOWN) else line for line, _ in pairs]
    rows = [list(row) for row in zip(*lines, strict=True)] if action in (UP, DOWN) else lines
    return rows, sum(scored for _, scored in pairs)


class Plain:
    """One position; `score` is added up as it comes."""

    def __init__(self, max_moves: int = 20_000) -> None:
        self.board = [[0] * 4 for _ in range(4)]
        self.score, self.moves, self.to_place, self.max_moves = 0, 0, 2, max_moves

    def legal(self) -> list[int]:
        return [action for action in range(4) if moved(self.board, action)[0] != self.board]

    def current_player(self) -> int:
        if self.to_place:
            return CHANCE_PLAYER
        return 0 if self.legal() and self.moves < self.max_moves else TERMINAL_PLAYER

    def legal_actions(self) -> list[int]:
        player = self.current_player()
        return [outcome for outcome, _ in self.chance_outcomes()] if player == CHANCE_PLAYER else self.legal() if player == 0 else []

    def chance_outcomes(self) -> list[tuple[int, float]]:
        empty = [4 * row + column for row in range(4) for column in range(4) if not self.board[row][column]]
        return [(2 * cell + four, (0.1 if four else 0.9) / len(empty)) for cell in empty for four in (0, 1)]

    def apply_action(self, action: int) -> None:
        if self.to_place:
            self.board[action // 8][action // 2 % 4] = 4 if action % 2 else 2
            self.to_place -= 1
            return
        self.board, scored = moved(self.board, action)
        self.score += scored
        self.moves += 1
        self.to_place = 1
