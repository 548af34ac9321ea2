"""Games from elsewhere: `path/to/file.py:Class` and `openspiel:NAME`."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Mapping
from hashlib import blake2s
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from azq.errors import ConfigError, GameContractError, MissingExtra, UnknownGameError
from azq.games.adapter import SCALE, AdaptedGame, play_random

PROBE_GAMES = 5
SECRETS = ("information_state_string", "resample_from_infostate")
CHANCE = ("is_chance_node", "chance_outcomes")
REQUIRED = ("current_player", "legal_actions", "apply_action", "is_terminal", "returns", "observation_tensor")


def is_python_file(name: str) -> bool:
    """Whether a name means a class in a Python file."""
    path, colon, cls = name.rpartition(":")
    return bool(colon) and path.endswith(".py") and cls.isidentifier()


def absolute(name: str) -> str:
    """The same game by an absolute path, so that processes with other working folders find it; other names unchanged."""
    path, _, cls = name.rpartition(":")
    return f"{Path(path).resolve()}:{cls}" if is_python_file(name) else name


def from_python_file(name: str, params: Mapping[str, Any]) -> AdaptedGame:
    """A class of a Python file; it is the position, or a game with new_initial_state().

    Raises `UnknownGameError` where there is no such file or class, `ConfigError` for parameters it does not take and
    `GameContractError` where it lacks a method.
    """
    path, _, cls = name.rpartition(":")
    kind = getattr(_module(Path(path)), cls, None)
    if not isinstance(kind, type):
        raise UnknownGameError(f"no class {cls} in {path}; write path/to/file.py:Class")
    try:
        game = kind(**params)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"game {name} does not take the parameters {dict(params)}: {error}") from None
    except Exception as error:
        raise GameContractError(f"game {name}: {cls}() raised {type(error).__name__}: {error}") from error

    def make() -> Any:
        return game.new_initial_state() if hasattr(game, "new_initial_state") else kind(**params)

    counts = {method: _count(name, game, method) for method in ("num_players", "num_distinct_actions")}
    longest = _count(name, game, "max_game_length") if hasattr(game, "max_game_length") else 10_000
    try:
        first = make()
    except Exception as error:
        raise GameContractError(f"game {name}: a new position raised {type(error).__name__}: {error}") from error
    missing = [method for method in REQUIRED if not callable(getattr(first, method, None))]
    if missing:
        raise GameContractError(f"game {name} has no method {missing[0]}(); see docs/games/your-own.md")
    players, actions = counts["num_players"], counts["num_distinct_actions"]
    return AdaptedGame(name, params, make, players=players, actions=actions, rules=game, max_length=longest)


def _count(name: str, game: Any, method: str) -> int:
    if not callable(getattr(game, method, None)):
        raise GameContractError(f"game {name} has no method {method}(); see docs/games/your-own.md")
    try:
        return index(getattr(game, method)())
    except Exception as error:
        raise GameContractError(f"game {name}: {method}() gives no whole number: {type(error).__name__}: {error}") from error


def from_openspiel(name: str, params: Mapping[str, Any]) -> AdaptedGame:
    """A sequential game of OpenSpiel; returns are divided by the largest utility.

    Numbers in its tensors that are no bits travel 16 to one, or fewer where random games show some that would not fit an int8.
    Raises `MissingExtra` without open_spiel, `UnknownGameError` for a name it does not know, `ConfigError` for a game that azq
    cannot play: simultaneous moves, dice inside a state, two players who are no opponents, secrets that cannot be drawn anew, or
    nothing for a network to look at.
    """
    short = name.removeprefix("openspiel:")
    try:
        import pyspiel
    except ImportError:
        raise MissingExtra(f"game {name} needs open_spiel; `pip install open_spiel`") from None
    try:
        game = pyspiel.load_game(short, dict(params)) if params else pyspiel.load_game(short)
    except Exception as error:
        raise UnknownGameError(f"open_spiel has no game {short!r} with {dict(params)}: {str(error).splitlines()[0]}") from None
    kind = game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ConfigError(f"game {name} has simultaneous moves; azq plays sequential games")
    if game.num_players() == 2 and kind.utility != pyspiel.GameType.Utility.ZERO_SUM:
        raise ConfigError(f"game {name} has two players and is not zero-sum; azq's value of two players is one number")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise ConfigError(f"game {name} rolls dice inside its states, so a recorded game would not replay; azq plays explicit chance")
    hidden = kind.information == pyspiel.GameType.Information.IMPERFECT_INFORMATION
    if not kind.provides_observation_tensor and not kind.provides_information_state_tensor:
        raise ConfigError(f"game {name} provides no observation tensor, so no network can look at it")
    utility = max(abs(game.min_utility()), abs(game.max_utility()), 1e-9)
    absent = frozenset(() if hidden else SECRETS) | frozenset(
        () if kind.chance_mode == pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC else CHANCE
    )

    def make() -> _OpenSpielState:
        return _OpenSpielState(game.new_initial_state(), absent, kind.provides_observation_tensor)

    common = {
        "players": game.num_players(),
        "actions": game.num_distinct_actions(),
        "utility": utility,
        "max_length": game.max_game_length(),
    }
    probe = AdaptedGame(name, params, make, binary=False, **common)
    binary, largest = _look(probe, name, hidden)
    scale = min(SCALE, 127.0 / largest) if largest else SCALE
    return AdaptedGame(name, params, make, binary=binary, scale=scale, **common)


def _look(game: AdaptedGame, name: str, hidden: bool) -> tuple[bool, float]:
    """Whether some random games show nothing but 0 and 1, and the largest number they show; tries the redrawing of secrets too."""
    rng = random.Random(0)
    bits, largest = True, 0.0
    for number in range(PROBE_GAMES):
        for state in play_random(game.new_initial_state(), rng.choice):
            seen = state.raw_observation(state.current_player())
            bits = bits and bool(((seen == 0.0) | (seen == 1.0)).all())
            largest = max(largest, float(np.abs(seen).max()))
            if hidden and number == 0:
                try:
                    state.resample_from_infostate(state.current_player(), 1)
                except GameContractError as error:
                    raise ConfigError(f"game {name} hides information and open_spiel cannot draw it anew ({error})") from None
    return bits, largest


class _OpenSpielState:
    """OpenSpiel's state; only what its game has, and its tensors flat."""

    def __init__(self, state: Any, absent: frozenset[str], observes: bool) -> None:
        self._state, self._absent, self._observes = state, absent, observes
        if "resample_from_infostate" not in absent:
            self.resample_from_infostate = self._resample

    def __getattr__(self, name: str) -> Any:
        if name in self._absent:
            raise AttributeError(name)
        return getattr(self._state, name)

    def observation_tensor(self, player: int) -> Any:
        """Flat floats."""
        return self._state.observation_tensor(player) if self._observes else self._state.information_state_tensor(player)

    def action_to_string(self, action: int) -> str:
        """For whoever is to move."""
        return str(self._state.action_to_string(self._state.current_player(), action))

    def clone(self) -> _OpenSpielState:
        """A copy."""
        return _OpenSpielState(self._state.clone(), self._absent, self._observes)

    def _resample(self, player: int, rng: Any) -> _OpenSpielState:
        return _OpenSpielState(self._state.resample_from_infostate(player, rng), self._absent, self._observes)

    def __str__(self) -> str:
        return str(self._state)


def _module(path: Path) -> Any:
    if not path.is_file():
        raise UnknownGameError(f"no file {path}; the game's file must be on every machine that plays it, at the same path")
    name = f"azq_user_game_{path.stem}_{blake2s(str(path.resolve()).encode()).hexdigest()[:8]}"  # two files may share a name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownGameError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GameContractError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
