"""Prints the rows of the table of drills in docs/benchmarks.md from what `azq drill run NAMES --rounds N --json` wrote.

Usage: drill_rows.py FILE ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = ("drill", "rounds", "median s", "longest s", "bound s", "longest pause s", "search lost s", "lost / twice", "passed")


def row(values: Mapping[str, Any]) -> str:
    """One drill."""
    cells = [
        values["name"], values["rounds"], _tenths(values["recovery_s"]), _tenths(values["recovery_max_s"]), f"{values['within_s']:g}",
        _tenths(values["pause_s"]), _tenths(values["search_lost_s"]), f"{values['games_lost']} / {values['duplicates_inserted']}",
        "yes" if values["passed"] else values["problem"],
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _tenths(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f}"


def main(paths: list[str]) -> None:
    """The table."""
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for path in paths:
        for values in json.loads(Path(path).read_text("utf-8"))["drills"]:
            print(row(values))


if __name__ == "__main__":
    main(sys.argv[1:])
