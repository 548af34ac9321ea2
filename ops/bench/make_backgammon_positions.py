"""Makes the graded backgammon positions that `azq grade` uses; needs gnubg-nn.

    python ops/bench/make_backgammon_positions.py --out azq/arena/data/backgammon.jsonl

gnubg 0-ply plays itself. Of the turns with two end positions or more, some of each phase are kept: contact, race, bearoff (all
checkers of both at home). Every end position is graded by gnubg's equity in points without a cube, by default looking two rolls
ahead. Losing 0.001 of it is a millipoint. A file begun is continued, so the work may be cut into pieces with --at-most.
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

from azq import games
from azq.arena.engines.gnubg import Board, Gnubg, GnubgPlayer, lines, phase, read_position_id, write_position_id
from azq.games import Game, State

SHARES = {"contact": 0.7, "race": 0.18, "bearoff": 0.12}  # about as decisions fall between engines, with more of the endgame
MAX_ENDS = 80  # a double with more costs more time and bytes than it tells
KEEP_ONE_IN = 7  # decisions of one game resemble each other
POINTS = 3  # of a return of 1


def settle(state: State, rng: random.Random) -> None:
    """Lets chance act."""
    while state.is_chance_node():
        outcomes, weights = zip(*state.chance_outcomes(), strict=True)
        state.apply_action(rng.choices(outcomes, weights)[0])


def decisions(game: Game, player: GnubgPlayer, seed: int) -> Iterator[State]:
    """Turns about to be played, without end, some of each game."""
    rng = random.Random(seed)
    while True:
        state = game.new_initial_state()
        settle(state, rng)
        while not state.is_terminal():
            if rng.randrange(KEEP_ONE_IN) == 0:
                yield state.clone()
            mover = state.current_player()
            while state.current_player() == mover:
                (action,) = player.choose([state.history()])
                state.apply_action(action)
            settle(state, rng)


def bare(state: State) -> str:
    """The position and the dice alone: the player on roll is player 0, it is turn 1."""
    return ":".join(state.notation().split(":")[:2])


def candidates(game: Game, seed: int) -> Iterator[tuple[str, str, dict[Board, list[int]]]]:
    """Distinct decisions without end: notation, phase, and the end positions with a line of micro-moves to each."""
    player = GnubgPlayer("gnubg:0", game)
    seen = set()
    try:
        for state in decisions(game, player, seed):
            notation = bare(state)
            ends = lines(state)
            if notation in seen or not 2 <= len(ends) <= MAX_ENDS:
                continue
            seen.add(notation)
            yield notation, phase(read_position_id(notation.split(":")[0])), ends
    finally:
        player.close()


def values(game: Game, engine: Gnubg, notation: str, ends: dict[Board, list[int]]) -> dict[str, float]:
    """Equity in points of the turn to each end position, by the turn's actions."""
    start = game.state_from_notation(notation)
    graded: dict[str, float] = {}
    open_ends = []
    for end, line in ends.items():
        state = start.clone()
        for action in line:
            state.apply_action(action)
        if state.is_terminal():
            graded[" ".join(map(str, line))] = round(POINTS * state.returns()[0], 5)
        else:
            open_ends.append((end, line))
    if open_ends:
        equities = engine.values([write_position_id(end, on_roll=False) for end, _ in open_ends])
        for (_, line), equity in zip(open_ends, equities, strict=True):
            graded[" ".join(map(str, line))] = round(-equity, 5) + 0.0
    return graded


def make(seed: int, count: int, grader: str, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The positions of a set that the lines known do not have yet."""
    game = games.load("backgammon")
    quotas = {name: round(share * count) for name, share in SHARES.items()}
    have = {line["position"] for line in known}
    taken: Counter[str] = Counter()
    engine = Gnubg(grader, deadline_s=600)
    try:
        for notation, name, ends in candidates(game, seed):
            if taken[name] >= quotas[name]:
                continue
            taken[name] += 1
            if notation not in have:
                yield {"position": notation, "moves": values(game, engine, notation, ends), "phase": name}
            if taken == Counter(quotas):
                return
    finally:
        engine.close()


def main() -> int:
    """Writes the file, a line at a time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--positions", type=int, default=600)
    parser.add_argument("--grader", default="gnubg:2")
    parser.add_argument("--at-most", type=int, default=1 << 30, help="stop after so many new positions")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    known = [json.loads(line) for line in options.out.read_text("utf-8").splitlines()]
    made = 0
    with options.out.open("a", encoding="utf-8") as file:
        for line in make(options.seed, options.positions, options.grader, known):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            made += 1
            if made >= options.at_most:
                break
    print(f"{len(known) + made} positions in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
