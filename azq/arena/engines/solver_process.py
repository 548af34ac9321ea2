"""Run as a script, never imported: reads {"actions": [..]} a line, writes {"scores": {"3": 1, ..}} a line.

The solver is AGPL; a separate process keeps it out of azq. This file imports nothing of azq.
"""

from __future__ import annotations

import json
import sys

from bitbully import BitBully, Board


def main() -> None:
    """Answers until standard input ends."""
    solver = BitBully()
    for line in sys.stdin:
        board = Board()
        moves = json.loads(line)["actions"]
        played = all(board.play(column) for column in moves)
        answer = {"scores": solver.score_all_moves(board)} if played else {"error": f"{moves} does not replay"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
