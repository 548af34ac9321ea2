"""How a run of connect four judges and plays the positions of its own games, beside the exact result; needs the extra `eval` (bitbully).

    python ops/bench/own_games.py RUN_FOLDER [--games 1500] [--count 1500] [--out POSITIONS.jsonl]

Graded positions stand on random lines; those that two good players come to are harder, and are what a network learns from. Of plies
drawn from the newest games it tells, by the number of stones: how often the played move lost a result class, where some move does; and the
mean squared distance from the exact result of the game's result (the noise of the target) and of the search's value. `--out` keeps those
positions in which a choice matters, for `azq grade --positions`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bitbully import BitBully
from make_positions import class_of, is_critical, solve

from azq.replay.readers import SegmentReader
from azq.wire.messages import SampleEvent

BAND = 4  # stones
FIRST, LAST = 5, 36  # stones: before, solving takes long; beyond, all is decided


@dataclass(frozen=True, slots=True)
class Judged:
    """A searched ply, its exact values and what became of it."""

    actions: Sequence[int]
    values: Sequence[int | None]
    left: int  # plies under perfect play
    played: int
    result: float  # of the game, for the player to move, as is the next one
    searched: float

    @property
    def best(self) -> int:
        return max(value for value in self.values if value is not None)

    def line(self) -> dict[str, Any]:
        """As `azq grade --positions` reads it."""
        return {"actions": list(self.actions), "class": class_of(len(self.actions), self.left), "values": list(self.values)}


def drawn(events: Sequence[SampleEvent], count: int) -> Iterator[Judged]:
    """Searched plies of games, drawn evenly."""
    rng, solver = random.Random(0), BitBully()
    while count:
        event = rng.choice(events)
        record, ply = event.record, rng.randint(FIRST, LAST)
        actions: list[int] = np.frombuffer(record.actions, "<u2").tolist()
        if ply >= len(actions) or not np.frombuffer(record.simulations, "<u2")[ply]:
            continue
        values, left = solve(solver, actions[:ply])
        searched = float(np.frombuffer(record.root_values, "<f4")[ply])
        yield Judged(actions[:ply], values, left, actions[ply], event.returns[ply % 2], searched)
        count -= 1


def row(name: str, found: Sequence[Judged]) -> str:
    """A row of the table."""
    matter = [one for one in found if is_critical(list(one.values))]
    lost = sum((one.values[one.played] or 0) < one.best for one in matter)
    noise, off = (np.mean([(getattr(one, what) - one.best) ** 2 for one in found]) for what in ("result", "searched"))
    return f"| {name} | {len(found)} | {lost} of {len(matter)}, {100 * lost / max(1, len(matter)):.0f} % | {noise:.2f} | {off:.2f} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--games", type=int, default=1500, help="the newest so many")
    parser.add_argument("--count", type=int, default=1500, help="plies to judge")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    newest = SegmentReader(options.run / "segments").last(options.games)
    events = [event for event in newest if np.frombuffer(event.record.simulations, "<u2")[FIRST : LAST + 1].any()]
    if not events:
        parser.error(f"no game of {options.run} was searched between {FIRST} and {LAST} stones; name a run of connect four that has played")
    found = list(drawn(events, options.count))
    bands = defaultdict[int, list[Judged]](list)
    for one in found:
        bands[len(one.actions) // BAND * BAND].append(one)
    print("| stones | plies | moves that lost a result class | squared distance of the game's result | of the search's value |")
    print("|---|---|---|---|---|")
    for first in sorted(bands):
        print(row(f"{first} to {first + BAND - 1}", bands[first]))
    print(row("all", found))
    if options.out:
        options.out.write_text("".join(json.dumps(one.line()) + "\n" for one in found if is_critical(list(one.values))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
