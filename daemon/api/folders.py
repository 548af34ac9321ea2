"""Where a run that is asked for over REST may keep its files: in a folder of its own below the daemon's home, wherever links lead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from azq.errors import ConfigError


def folder_of(run: str, said: str, home: Path, taken: Mapping[str, str]) -> str:
    """The folder of a new run, absolute; `said` is empty for the usual one, `taken` are the folders of the other runs by name.

    Raises `ConfigError` for one outside of `home`, one of azq's own, and one that holds, or lies in, that of another run.
    """
    folder = Path(os.path.abspath(home / (said or run)))
    place = _real(folder)
    below = _parts_below(place, _real(home))
    if said and (not below or any(part.startswith(".") for part in below)):
        raise ConfigError(
            f"directory {said!r} is no folder for a run below {home.absolute()}, the daemon's home; leave it out, or name one there"
        )
    for other, theirs in taken.items():
        if theirs and (place.is_relative_to(_real(theirs)) or _real(theirs).is_relative_to(place)):
            raise ConfigError(f"directory {str(folder)!r} is that of run {other}, or holds it, or lies in it; name another")
    return str(folder)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises where links run in a circle


def _parts_below(place: Path, home: Path) -> tuple[str, ...]:
    return place.relative_to(home).parts if place.is_relative_to(home) else ()
