"""Backgammon's complete turns, written plainly: every order of the dice is tried, and the longest turns are kept."""

from __future__ import annotations

from collections.abc import Iterator

BAR = 25
Side = tuple[int, ...]  # checkers by point in the player's own numbering: 0 borne off, 1..24, 25 on the bar
Board = tuple[Side, Side]  # who moves, the other


def turns(board: Board, dice: tuple[int, int]) -> set[Board]:
    """End positions of all legal complete turns; the position itself where nothing can be played."""
    orders = [[dice[0]] * 4] if dice[0] == dice[1] else [list(dice), list(reversed(dice))]
    found = [(len(played), max(played, default=0), end) for order in orders for played, end in _lines(board, order)]
    longest = max(length for length, _, _ in found)
    if longest == 1 and dice[0] != dice[1]:
        largest = max(die for length, die, _ in found if length == 1)
        return {end for length, die, end in found if length == 1 and die == largest}
    return {end for length, _, end in found if length == longest}


def _lines(board: Board, dice: list[int]) -> Iterator[tuple[list[int], Board]]:
    """Every way to play a prefix of the dice in this order; a die that cannot be played ends the line."""
    yield [], board
    if not dice or board[0][0] == 15:
        return
    for after in moves(board, dice[0]):
        for played, end in _lines(after, dice[1:]):
            yield [dice[0], *played], end


def moves(board: Board, die: int) -> Iterator[Board]:
    """Positions after one checker moved by this die."""
    own, other = board
    for source in [BAR] if own[BAR] else range(1, 25):
        if not own[source]:
            continue
        target = source - die
        if target <= 0:
            home = all(not own[point] for point in range(7, 26))
            exact = target == 0 or all(not own[point] for point in range(source + 1, 7))
            if not (home and exact):
                continue
        elif other[25 - target] > 1:
            continue
        yield _moved(own, other, source, max(target, 0))


def _moved(own: Side, other: Side, source: int, target: int) -> Board:
    mine, theirs = list(own), list(other)
    mine[source] -= 1
    mine[target] += 1
    if target and theirs[25 - target] == 1:
        theirs[25 - target] = 0
        theirs[BAR] += 1
    return tuple(mine), tuple(theirs)
