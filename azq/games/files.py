"""Games in Python files, `path/to/file.py:Class`: a run's record only names one, the host's own settings decide which may be run."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from operator import index
from pathlib import Path
from typing import Any, cast

from azq import _core
from azq._core import Game
from azq.errors import ConfigError, GameContractError, UnknownGameError, meant
from azq.games.adapted_state import RAISED
from azq.games.adapter import AdaptedGame
from azq.games.openspiel import PREFIX, from_openspiel
from azq.games.scores import ScoreScale, read_scale

COUNTS = ("num_players", "num_distinct_actions")
REQUIRED = ("current_player", "legal_actions", "apply_action", "is_terminal", "returns", "observation_tensor")
PACKAGES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class GameFiles:
    """The Python files, and folders with all below them, that games may come from; none by default. Other games need no leave."""

    allowed: tuple[Path, ...] = ()

    @classmethod
    def named(cls, name: str) -> GameFiles:
        """The file of this game alone: for a name that a person gave himself, on his command line or in code of his own."""
        return cls((Path(name.rpartition(":")[0]),) if is_python_file(name) else ())

    def load(self, name: str, params: Mapping[str, int | float | str | bool], source: object = "") -> Game:
        """The rules of one game; raises as `azq.games.load`, and `ConfigError` for a Python file that is not allowed: it stays closed.

        `source` is the file that names the game, where it is one.
        """
        if is_python_file(name):
            return cast(Game, from_python_file(name, self.path(name, source), params))
        if name.startswith(PREFIX):
            return cast(Game, from_openspiel(name, params))
        try:
            return _core.load_game(name, dict(params))
        except UnknownGameError as error:
            raise UnknownGameError(f"{error}{meant(name, _core.game_names())}") from None

    def path(self, name: str, source: object = "") -> Path:
        """The file of a game, symbolic links followed, where it is allowed; `ConfigError` otherwise."""
        path, places = _resolved(Path(name.rpartition(":")[0])), [place for place in map(_resolved, self.allowed) if place]
        if path is None or not any(path.is_relative_to(place) for place in places):
            raise ConfigError(
                f"{f'{source} names ' if source else ''}game {name}, a Python file that this host does not allow; "
                "where it is to be trusted, name it, or a folder, in worker.game_files, or it with --game FILE:CLASS"
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
    return {place for place in (_resolved(Path(folder)) for folder in places) if place is not None}


def is_python_file(name: str) -> bool:
    """Whether a name means a class in a Python file."""
    path, colon, cls = name.rpartition(":")
    return bool(colon) and path.endswith(".py") and cls.isidentifier()


def absolute(name: str) -> str:
    """The same game by an absolute path, so that processes with other working folders find it; other names unchanged."""
    path, _, cls = name.rpartition(":")
    return f"{Path(path).resolve()}:{cls}" if is_python_file(name) else name


def from_python_file(name: str, path: Path, params: Mapping[str, Any]) -> AdaptedGame:
    """The class that `name` means in the file `path`; it is the position, or a game with new_initial_state().

    Raises `UnknownGameError` where there is no such file or class, `ConfigError` for parameters it does not take and
    `GameContractError` where it lacks a method, before anything of it is called.
    """
    file, _, cls = name.rpartition(":")
    kind = getattr(_module(path, file), cls, None)
    if not isinstance(kind, type):
        raise UnknownGameError(f"no class {cls} in {file}; write path/to/file.py:Class")
    makes_positions = hasattr(kind, "new_initial_state")
    _check_methods(name, kind, COUNTS if makes_positions else COUNTS + REQUIRED)
    _check_params(name, kind, params)
    try:
        game = kind(**params)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"game {name} does not take the parameters {dict(params)}: {error}") from None
    except RAISED as error:
        raise GameContractError(f"game {name}: {cls}() raised {type(error).__name__}: {error}") from error

    def make() -> Any:
        return game.new_initial_state() if makes_positions else kind(**params)

    players, actions = (_count(name, game, method) for method in COUNTS)
    longest = _count(name, game, "max_game_length") if hasattr(game, "max_game_length") else 10_000
    try:
        first = make()
    except RAISED as error:
        raise GameContractError(f"game {name}: a new position raised {type(error).__name__}: {error}") from error
    _check_methods(name, first, REQUIRED)
    return AdaptedGame(
        name, params, make, players=players, actions=actions, rules=game, max_length=longest, scores=_scores(name, game, players)
    )


def _check_methods(name: str, owner: Any, methods: Sequence[str]) -> None:
    for method in methods:
        if not callable(getattr(owner, method, None)):
            raise GameContractError(f"game {name} has no method {method}(); see docs/games/your-own.md")


def _check_params(name: str, kind: type, params: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a parameter that the class does not name, and for a text where the default is a number or true or false."""
    try:
        parameters = inspect.signature(kind).parameters
    except ValueError:  # a class of a library in C tells none
        return
    for key, value in params.items():
        if key not in parameters and all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
            takes = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
            raise ConfigError(f"game {name} has no parameter {key}; {takes}{meant(key, parameters)}")
        default = parameters[key].default if key in parameters else None
        if isinstance(default, bool) and value not in (False, True):
            raise ConfigError(f"game {name}: parameter {key} is true or false, not {value!r}")
        if isinstance(default, int | float) and isinstance(value, str):
            raise ConfigError(f"game {name}: parameter {key} is a number, not {value!r}")


def _scores(name: str, game: Any, players: int) -> ScoreScale | None:
    if not callable(getattr(game, "scores", None)):
        return None
    try:
        return read_scale(game.scores(), players)
    except RAISED as error:
        raise GameContractError(f"game {name}: scores() gives no scale of scores: {type(error).__name__}: {error}") from error


def _count(name: str, game: Any, method: str) -> int:
    try:
        return index(getattr(game, method)())
    except RAISED as error:
        raise GameContractError(f"game {name}: {method}() gives no whole number: {type(error).__name__}: {error}") from error


def _module(path: Path, file: str) -> Any:
    if not path.is_file():
        raise UnknownGameError(f"no file {file}; the game's file must be on every machine that plays it, at the same path")
    name = f"azq_user_game_{path.stem}_{blake2s(str(path).encode()).hexdigest()[:8]}"  # two files may share a name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownGameError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.modules[name] = module
    sys.path.append(folder := str(path.parent))  # it may import what lies beside it; last, so that this takes no library's place
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        remedy = "import a file beside it by its bare name (`from board import N`), and install a library where azq is"
        raise GameContractError(f"{path} cannot be imported: {type(error).__name__}: {error}; {remedy}") from error
    except RAISED as error:
        raise GameContractError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
        for beside in set(sys.modules) - before - {name}:
            if str(getattr(sys.modules[beside], "__file__", None)).startswith(folder + "/"):
                del sys.modules[beside]  # another folder's game may import another file of this name
    return module
