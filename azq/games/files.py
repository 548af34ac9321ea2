"""Which Python files a process may run as games: a run's record only names one, the host's own settings decide."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from azq import _core
from azq._core import Game
from azq.errors import ConfigError
from azq.games.loading import from_python_file, is_python_file
from azq.games.openspiel import PREFIX, from_openspiel

PACKAGES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class GameFiles:
    """The Python files, and folders with all below them, that games may come from; none by default. Other games need no leave."""

    allowed: tuple[Path, ...] = ()

    @classmethod
    def named(cls, name: str) -> GameFiles:
        """The file of this game alone: for a name that a person gave himself, on his command line or in code of his own."""
        return cls((Path(name.rpartition(":")[0]),) if is_python_file(name) else ())

    def load(self, name: str, params: Mapping[str, int | float | str | bool]) -> Game:
        """The rules of one game; raises as `azq.games.load`, and `ConfigError` for a Python file that is not allowed: it stays closed."""
        if is_python_file(name):
            return cast(Game, from_python_file(name, self.path(name), params))
        if name.startswith(PREFIX):
            return cast(Game, from_openspiel(name, params))
        return _core.load_game(name, dict(params))

    def path(self, name: str) -> Path:
        """The file of a game, symbolic links followed, where it is allowed; `ConfigError` otherwise."""
        path, places = _resolved(Path(name.rpartition(":")[0])), [place for place in map(_resolved, self.allowed) if place]
        if path is None or not any(path.is_relative_to(place) for place in places):
            raise ConfigError(
                f"game {name} is a Python file that this host does not allow; its operator can name it, or a folder, in worker.game_files"
            )
        if PACKAGES.intersection(path.parts) or any(path.is_relative_to(place) for place in _interpreter()):
            raise ConfigError(
                f"game {name} lies among the interpreter's own files, which are never run as games; copy it to another folder"
            )
        return path


def _resolved(path: Path) -> Path | None:
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such home, a NUL
        return None


def _interpreter() -> set[Path]:
    """The folders of the running interpreter, its standard library and its packages."""
    places = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values())
    return {place for place in (_resolved(Path(said)) for said in places) if place is not None}
