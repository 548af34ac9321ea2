"""Writes the table of docs/games/openspiel.md: every registered game of OpenSpiel, and whether azq trains on it, tried game by game."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from azq.errors import AzqError
from azq.games.apart import check_apart
from azq.games.openspiel import PREFIX

PAGE = Path(__file__).parents[1] / "docs" / "games" / "openspiel.md"
HEADER = "| verdict | games |\n|---|---|\n"


def verdict(name: str) -> str:
    """`trains`, or why azq refuses a game with its own parameters."""
    try:
        report = check_apart(PREFIX + name, {}, 1)
    except AzqError as error:
        return re.split(r"[;:(]", str(error).removeprefix(f"game {PREFIX}{name}").lstrip(": "))[0].strip()
    return "trains" if report.sound else f"breaks the rule {report.findings[0].rule}"


def table(verdicts: dict[str, str]) -> str:
    """Rows by verdict, the longest first."""
    groups: dict[str, list[str]] = {}
    for name, found in sorted(verdicts.items()):
        groups.setdefault(found, []).append(f"`{name}`")
    rows = sorted(groups.items(), key=lambda group: -len(group[1]))
    return HEADER + "".join(f"| {found} | {', '.join(names)} |\n" for found, names in rows)


def main() -> None:
    """Tries all games, which takes some minutes, and puts the table at the end of the page."""
    import pyspiel

    verdicts = {}
    for name in pyspiel.registered_names():
        verdicts[name] = verdict(name)
        print(name, verdicts[name], file=sys.stderr, flush=True)
    PAGE.write_text(PAGE.read_text("utf-8").partition(HEADER)[0] + table(verdicts), "utf-8")


if __name__ == "__main__":
    main()
