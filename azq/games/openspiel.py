"""Games of OpenSpiel: `openspiel:NAME`, with parameters of its own."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from azq.errors import ConfigError, GameContractError, MissingExtra, UnknownGameError
from azq.games.adapter import SCALE, AdaptedGame, play_random

PREFIX = "openspiel:"
PROBE_GAMES = 5
SECRETS = ("information_state_string", "resample_from_infostate")
CHANCE = ("is_chance_node", "chance_outcomes")
_NAME = re.compile(r"[a-z0-9_]+")
_A_FILE = re.compile(r"file(name)?$")  # as efg_game's `filename`, bargaining's `instances_file`
_A_PATH = re.compile(r"[/\\]|\.\.|^~")


def check_openspiel(name: str, params: Mapping[str, Any]) -> str:
    """The name by which open_spiel knows the game; `ConfigError` for what is no bare name, and for parameters that name a file. Pure."""
    short = name.removeprefix(PREFIX)
    if not _NAME.fullmatch(short):
        bare = _NAME.match(short)
        raise ConfigError(
            f"game {name} is none of openspiel:NAME with letters, digits and '_'; write openspiel:{bare.group() if bare else 'NAME'}, "
            "and its parameters as --set run.params.rows=5 (--param rows=5)"
        )
    for key, value in params.items():
        if _A_FILE.search(key) or (isinstance(value, str) and _A_PATH.search(value)):
            raise ConfigError(f"game {name} with {key}={value!r}: azq has OpenSpiel open no files; leave the parameter out")
    return short


def from_openspiel(name: str, params: Mapping[str, Any]) -> AdaptedGame:
    """A sequential game of OpenSpiel; returns are divided by the largest utility.

    Numbers in its tensors that are no bits travel 16 to one, or fewer where random games show some that would not fit an int8.
    Raises `MissingExtra` without open_spiel, `UnknownGameError` for a name it does not know, `ConfigError` for a game that azq
    cannot play: simultaneous moves, dice inside a state, two players who are no opponents, secrets that cannot be drawn anew, or
    nothing for a network to look at; and for what `check_openspiel` refuses.
    """
    short = check_openspiel(name, params)
    try:
        import pyspiel
    except ImportError:
        raise MissingExtra(f"game {name} needs open_spiel; `pip install open_spiel`") from None
    try:
        game = pyspiel.load_game(short, dict(params)) if params else pyspiel.load_game(short)
    except Exception as error:
        raise UnknownGameError(f"open_spiel has no game {short!r} with {dict(params)}: {str(error).splitlines()[0]}") from None
    _check_playable(name, game, pyspiel.GameType)
    kind = game.get_type()
    hidden = kind.information == pyspiel.GameType.Information.IMPERFECT_INFORMATION
    utility = max(abs(game.min_utility()), abs(game.max_utility()), 1e-9)
    rolls = kind.chance_mode == pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC
    lacks = frozenset((*(() if hidden else SECRETS), *(() if rolls else CHANCE)))  # though its states have such methods

    sizes = {"players": game.num_players(), "actions": game.num_distinct_actions(), "max_length": game.max_game_length()}
    try:
        view = _View(game)
    except Exception as error:
        raise ConfigError(f"game {name} shows a network nothing: {str(error).splitlines()[0]}") from None
    adapted = partial(AdaptedGame, name, params, game.new_initial_state, utility=utility, lacks=lacks, observe=view, **sizes)
    binary, largest = _look(adapted(binary=False), name, hidden)
    return adapted(binary=binary, scale=min(SCALE, 127.0 / largest) if largest else SCALE)


def _check_playable(name: str, game: Any, types: Any) -> None:
    """Raises `ConfigError` for a kind of game that azq does not play; `types` is OpenSpiel's own account of kinds."""
    kind = game.get_type()
    if kind.dynamics != types.Dynamics.SEQUENTIAL:
        raise ConfigError(f"game {name} has simultaneous moves; azq plays sequential games")
    if game.num_players() == 2 and kind.utility != types.Utility.ZERO_SUM:
        raise ConfigError(f"game {name} has two players and is not zero-sum; azq's value of two players is one number")
    if kind.chance_mode == types.ChanceMode.SAMPLED_STOCHASTIC:
        raise ConfigError(f"game {name} rolls dice inside its states, so a recorded game would not replay; azq plays explicit chance")
    if not kind.provides_observation_tensor and not kind.provides_information_state_tensor:
        raise ConfigError(f"game {name} provides no observation tensor, so no network can look at it")


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


class _View(threading.local):
    """What a player of a state sees, or all that he knows in a game without observations; a board keeps its planes.

    OpenSpiel writes it into an array, one a thread, which the next look overwrites: a list of so many numbers takes several times as long.
    """

    def __init__(self, game: Any) -> None:
        from open_spiel.python.observation import INFO_STATE_OBS_TYPE, make_observation

        sees = game.get_type().provides_observation_tensor
        shape = game.observation_tensor_shape() if sees else game.information_state_tensor_shape()
        self._observation = make_observation(game, None if sees else INFO_STATE_OBS_TYPE)
        self._tensor = self._observation.tensor.reshape(shape if len(shape) == 3 else -1)

    def __call__(self, state: Any, player: int) -> Any:
        self._observation.set_from(state, player)
        return self._tensor
