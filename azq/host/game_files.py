"""Which Python files may be games here: those of `worker.game_files`, what a person names to a command, and what was so named in this home.

Weights, a run's folder, a store and a daemon only name a game: `load_game` loads what they say. A folder that somebody sent has no list.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from azq.config import Config
from azq.errors import ConfigError
from azq.files import publish_file
from azq.games import Game, GameFiles
from azq.games.files import is_python_file

LIST = ".game-files"  # of a home: a path a line


def load_game(config: Config, name: str, params: Mapping[str, int | float | str | bool], source: object = "") -> Game:
    """The rules of a game that data name; `source` is the file that names it. Raises as `GameFiles.load`."""
    return _allowed(config).load(name, params, source)


def check_game(config: Config, name: str, source: object) -> str:
    """The name of a game in the file `source`. Raises `ConfigError` where it is a Python file that `load_game` would not load."""
    if is_python_file(name):
        _allowed(config).path(name, source)
    return name


def with_game(config: Config, *names: str) -> Config:
    """The settings with which processes run games that a person named, where those are Python files; these files and no others."""
    named = (path.absolute() for name in names for path in GameFiles.named(name).allowed)
    files = tuple(dict.fromkeys((*config.worker.game_files, *named)))
    return config.model_copy(update={"worker": config.worker.model_copy(update={"game_files": files})})


def list_game(home: Path, name: str) -> None:
    """Lets later commands in this home load a game's file that a person named to this one."""
    listed, named = _listed(home), GameFiles.named(name).allowed
    if new := [path.resolve() for path in named if path.resolve() not in listed]:
        try:
            publish_file(home / LIST, "".join(f"{path}\n" for path in (*listed, *new)).encode(), 0o600)
        except OSError as error:
            raise ConfigError(f"{home / LIST} cannot be written ({error.strerror or error}); mend the folder's rights") from None


def _allowed(config: Config) -> GameFiles:
    return GameFiles((*config.worker.game_files, *_listed(config.home)))


def _listed(home: Path) -> list[Path]:
    try:
        return [Path(line) for line in (home / LIST).read_text("utf-8").splitlines() if line.endswith(".py")]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{home / LIST} cannot be read ({error}); delete it and name your games with --game again") from None
