"""Rules of thumb for 2048: lines that are ordered, with room and neighbours that join soon. Weights: github.com/nneonneo/2048-ai."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from azq import _core

ALIVE, ROOM, JOINS = 200_000.0, 270.0, 700.0  # of a line that does not end the game, of an empty cell, of neighbours that are alike
ORDER, ORDER_POWER = 47.0, 4.0  # what a line that rises and falls loses
CROWD, CROWD_POWER = 11.0, 3.5  # what many large tiles lose against one that is the sum of them


class Lines:
    """One move ahead: plays what leaves the best lines, before chance places a tile."""

    def best_action(self, state: _core.State) -> int:
        """Its action; ties go to the lowest."""
        return max(state.legal_actions(), key=lambda action: worth(_after(state, action)))


def _after(state: _core.State, action: int) -> list[list[int]]:
    """The rows, as powers of two, once an action has slid them."""
    after = state.clone()
    after.apply_action(action)
    board = after.notation().split(" ")[0]
    return [[0 if tile == "." else int(tile).bit_length() - 1 for tile in row.split(",")] for row in board.split("/")]


def worth(rows: Sequence[Sequence[int]]) -> float:
    """Of a board, the sum over its rows and columns."""
    return sum(_line(tuple(line)) for line in (*rows, *zip(*rows, strict=True)))


@cache
def _line(line: tuple[int, ...]) -> float:
    room, crowd = sum(power == 0 for power in line), sum(float(power) ** CROWD_POWER for power in line)
    tiles = [power for power in line if power]
    joins = sum(one == other for one, other in pairwise(tiles))
    steps: list[float] = [float(one) ** ORDER_POWER - float(other) ** ORDER_POWER for one, other in pairwise(line)]
    falls, rises = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    found: float = ALIVE + ROOM * room + JOINS * joins - ORDER * min(falls, rises) - CROWD * crowd
    return found
