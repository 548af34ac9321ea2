"""Run as a script, never imported: gnubg's evaluation and pubeval, a line of JSON asked, a line of JSON answered.

    {"player": "gnubg:1", "position": "4HPwATDgc/ABMA", "dice": [3, 1]} -> {"end": [[..25], [..25]]}
        the board after the player's turn: his checkers by point (1 to 24, then the bar) in his own numbering, and the other's
    {"player": "gnubg:1", "positions": ["4HPwATDgc/ABMA"]} -> {"values": [0.07]}
        what each is worth to the player on roll: gnubg's equity in points, or pubeval's score

gnubg-nn is GPL; a separate process keeps it out of azq. This file imports nothing of azq.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gnubg_nn

PUBEVAL = "pubeval"
BAR = 24


def end(player: str, position: str, dice: list[int]) -> list[list[int]]:
    """The board after the turn that the player likes best."""
    other, own = (list(side) for side in gnubg_nn.board_from_position_id(position))
    if player != PUBEVAL:
        key = gnubg_nn.best_move([other, own], *dice, plies(player), b"X", 1, 0, 0)[1]
        return [list(side) for side in gnubg_nn.board_from_position_key(key)]  # the other is on roll then, so he comes second
    steps = list(gnubg_nn.pub_best_move([other, own], *dice))
    for source, target in zip(steps[::2], steps[1::2], strict=True):
        own[source] -= 1
        if target < 0:
            continue
        own[target] += 1
        there = BAR - 1 - target
        if other[there] == 1:
            other[there] = 0
            other[BAR] += 1
    return [own, other]


def value(player: str, position: str) -> float:
    """What a position is worth to the player on roll."""
    board = gnubg_nn.board_from_position_id(position)
    if player == PUBEVAL:
        return -float(gnubg_nn.pub_eval_score(board))  # scores the player who has just moved
    win, gammon, backgammon, lose_gammon, lose_backgammon = gnubg_nn.probabilities(board, plies(player))
    return float(2 * win - 1 + gammon + backgammon - lose_gammon - lose_backgammon)


def plies(player: str) -> int:
    """How far it looks ahead."""
    return int(player.partition(":")[2])


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The object that answers one."""
    player = question["player"]
    if "positions" in question:
        return {"values": [value(player, position) for position in question["positions"]]}
    return {"end": end(player, question["position"], question["dice"])}


def main() -> None:
    """Answers until standard input ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
