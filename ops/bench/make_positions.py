"""Makes the graded connect-four positions that `azq.arena.grade` uses; needs the extra `eval` (bitbully).

    python ops/bench/make_positions.py --out azq/ratings/data/connect_four.jsonl

100 positions in each of six classes, named by stones played and by plies to the end under perfect play:
B up to 14 stones, M 15 to 28, E more; then E under 14 plies, M 14 to 28, H more. Every move of every position is solved exactly.
A random line of moves would give mostly simple positions, so the set is weighted: most positions are critical (some move
loses a result class), and the medium classes are spread evenly over the distance to the end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bitbully import BitBully, Board

CLASSES = ("BE", "BM", "BH", "ME", "MM", "EE")
STONES = {"B": (5, 14), "M": (15, 28), "E": (29, 38)}
PHASES_DRAWN = "BBBBMMMMME"  # how often each phase is tried: begin and middle have more classes
COLUMNS = 7
PLIES = 42


def class_of(stones: int, plies_left: int) -> str:
    """Name of the class of a position with so many stones, so many plies before the end."""
    phase = "B" if stones <= 14 else "M" if stones <= 28 else "E"
    return phase + ("E" if plies_left < 14 else "M" if plies_left <= 28 else "H")


def random_line(rng: random.Random, stones: int) -> list[int] | None:
    """A random line of so many moves that ends no game; None where it gets stuck."""
    board, actions = Board(), []
    for _ in range(stones):
        quiet = [column for column in range(COLUMNS) if board.is_legal_move(column) and not board.can_win_next(column)]
        if not quiet:
            return None
        actions.append(rng.choice(quiet))
        board.play(actions[-1])
    return actions


def solve(solver: BitBully, actions: list[int]) -> tuple[list[int | None], int]:
    """Result of each column for the player to move (None: full), and plies to the end under perfect play."""
    board = Board()
    for column in actions:
        board.play(column)
    scores = solver.score_all_moves(board)
    values: list[int | None] = [None] * COLUMNS
    for column, score in scores.items():
        values[column] = (score > 0) - (score < 0)
    return values, BitBully.score_to_moves_left(max(scores.values()), board)


def is_critical(values: list[int | None]) -> bool:
    """True where some legal move loses a result class."""
    return len({value for value in values if value is not None}) > 1


def candidates(rng: random.Random, solver: BitBully) -> Iterator[tuple[str, int, bool, dict[str, Any]]]:
    """Endless solved positions: class, plies to the end, critical or not, the line of the file."""
    seen = set()
    while True:
        actions = random_line(rng, rng.randint(*STONES[rng.choice(PHASES_DRAWN)]))
        if actions is None or tuple(actions) in seen:
            continue
        seen.add(tuple(actions))
        values, left = solve(solver, actions)
        name = class_of(len(actions), left)
        yield name, left, is_critical(values), {"actions": actions, "class": name, "values": values}


class Quotas:
    """How many positions of each kind the set still wants."""

    def __init__(self, per_class: int, critical_share: float) -> None:
        self._critical = round(per_class * critical_share)
        self._quiet = per_class - self._critical
        self._per_bin = per_class * 0.35
        self._taken: Counter[tuple[str, bool]] = Counter()
        self._bins: Counter[tuple[str, int]] = Counter()

    def take(self, name: str, left: int, critical: bool) -> bool:
        """True, and counted, where the set wants this position."""
        quota = self._critical if critical else self._quiet
        spread = name[1] == "M" and self._bins[name, left // 5] >= self._per_bin
        if name not in CLASSES or spread or self._taken[name, critical] >= quota:
            return False
        self._taken[name, critical] += 1
        self._bins[name, left // 5] += 1
        return True


def make(seed: int, per_class: int, critical_share: float) -> list[dict[str, Any]]:
    """The set, class by class."""
    quotas = Quotas(per_class, critical_share)
    chosen: list[dict[str, Any]] = []
    for name, left, critical, line in candidates(random.Random(seed), BitBully()):
        if quotas.take(name, left, critical):
            chosen.append(line)
            if len(chosen) == per_class * len(CLASSES):
                break
    return sorted(chosen, key=lambda line: CLASSES.index(line["class"]))


def main() -> int:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--critical", type=float, default=0.86, help="share of positions where some move loses a result class")
    options = parser.parse_args()
    found = make(options.seed, options.per_class, options.critical)
    lines = [json.dumps(line) for line in found]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} positions in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
