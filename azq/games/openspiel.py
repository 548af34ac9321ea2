"""Games of OpenSpiel: `openspiel:NAME`, with OpenSpiel's parameters."""

from __future__ import annotations

import json
import math
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from azq.config import parse_params
from azq.errors import ConfigError, GameContractError, MissingExtra, UnknownGameError, meant
from azq.games.adapted_state import AdaptedState
from azq.games.adapter import SCALE, AdaptedGame

PREFIX = "openspiel:"
PROBE_GAMES = 5
SECRETS = ("information_state_string", "resample_from_infostate")
CHANCE = ("is_chance_node", "chance_outcomes")
_NAME = re.compile(r"[a-z0-9_]+")
_A_FILE = re.compile(r"file(name)?$")  # as efg_game's `filename`, bargaining's `instances_file`
_A_PATH = re.compile(r"[/\\]|\.\.|^~")
_A_GAME = re.compile(r"([a-z0-9_]+)(?:\(([^()]*)\))?")
_A_PLACE = re.compile(r"^\S+:\d+ ")  # of open_spiel's source
_A_CHECK = re.compile(r"CHECK_\w+\((.*)\)$")
ALL_ACT_OPENLY = {"liars_dice"}  # nothing is hidden but what chance did, and open_spiel cannot draw that again
REDRAWS = 100_000
PROBE_S = 120.0
PROBE = """
import json, random, sys, pyspiel
state = pyspiel.load_game(sys.argv[1], json.loads(sys.argv[2])).new_initial_state()
for _ in range(1000):
    if state.is_terminal() or state.is_simultaneous_node(): break
    state.apply_action(random.choice(state.legal_actions()))
"""


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


def inner_game(name: str, key: str, text: object) -> dict[str, Any]:
    """`tic_tac_toe` or `breakthrough(rows=5,columns=4)` as a parameter that is a game itself; `ConfigError` for anything else. Pure."""
    match = _A_GAME.fullmatch(str(text))
    if not match:
        raise ConfigError(f"game {name}: parameter {key} is a game, not {text!r}; write {key}=NAME, or {key}=NAME(rows=5,columns=4)")
    params = parse_params(filter(None, (match[2] or "").split(",")))
    return {"name": check_openspiel(PREFIX + match[1], params), **params}


def from_openspiel(name: str, params: Mapping[str, Any]) -> AdaptedGame:
    """A sequential game of OpenSpiel; returns are divided by the largest utility, or are scores in a game for one whose are larger than 1.

    Numbers in its tensors that are no bits travel 16 to one, or fewer where random games show some that would not fit an int8.
    Raises `MissingExtra` without open_spiel, `UnknownGameError` for a name it does not know, `ConfigError` for a game that azq
    cannot play: simultaneous moves, dice inside a state, two players who are no opponents, secrets that cannot be drawn again, or
    nothing for a network to look at; and for what `check_openspiel` refuses, or parameters that open_spiel does not take.
    """
    short = check_openspiel(name, params)
    try:
        import pyspiel
    except ImportError:
        raise MissingExtra(f"game {name} needs open_spiel; `pip install open_spiel`") from None
    kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
    if short not in kinds:
        raise UnknownGameError(f"open_spiel has no game {short!r}{meant(short, kinds)}")
    game = _load(name, pyspiel, _checked(name, kinds[short], params))
    _check_playable(name, game, pyspiel.GameType)
    hidden = game.get_type().information == pyspiel.GameType.Information.IMPERFECT_INFORMATION
    utility = max(abs(game.min_utility()), abs(game.max_utility()), 1e-9)
    sizes = {"players": game.num_players(), "actions": game.num_distinct_actions(), "max_length": game.max_game_length()}
    try:
        view = _View(game)
    except Exception as error:
        raise ConfigError(f"game {name} shows a network nothing: {str(error).splitlines()[0]}") from None
    secrets = () if hidden else SECRETS  # though its states have such methods
    adapted = partial(AdaptedGame, name, params, game.new_initial_state, utility=utility, observe=view, **sizes)
    adapted = partial(adapted, redraw=_redrawn) if short in ALL_ACT_OPENLY else adapted
    seen = _probe(adapted(binary=False, lacks=frozenset(secrets)), name, hidden)
    rolls = seen.rolls or game.get_type().chance_mode == pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC
    scale = min(SCALE, 127.0 / seen.largest) if seen.largest else SCALE
    return adapted(binary=seen.bits, scale=scale, lacks=frozenset((*secrets, *(() if rolls else CHANCE))), **_scored(game, seen.returns))


def _scored(game: Any, returns: Sequence[float]) -> dict[str, Any]:
    """The scale of scores of a game for one, by random play where that reaches no tenth of it: the larger ones count by their logarithm."""
    low, high = game.min_utility(), game.max_utility()
    if game.num_players() != 1 or max(abs(low), abs(high)) <= 1 or not low < high < math.inf or low == -math.inf:
        return {}
    mean = math.fsum(returns) / len(returns) * max(abs(low), abs(high)) - low
    return {"utility": 1.0, "scores": (low, high, mean if 0 < mean < 0.1 * (high - low) else 0.0)}


def _checked(name: str, kind: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as open_spiel takes them; raises `ConfigError` for one that it does not know, or of another kind than its default."""
    defaults, given = kind.parameter_specification, dict[str, Any]()
    for key, value in params.items():
        if key not in defaults:
            takes = f"it takes {', '.join(sorted(defaults))}" if defaults else "it takes none"
            raise ConfigError(f"game {name} has no parameter {key}; {takes}{meant(key, defaults)}")
        default = defaults[key]
        given[key] = inner_game(name, key, value) if isinstance(default, dict) else _alike(name, key, value, default)
    if not given and any(map(_A_FILE.search, defaults)) and not kind.default_loadable:
        raise ConfigError(f"game {name} is read from a file, and azq has OpenSpiel open no files")
    if not given and not kind.default_loadable:
        missing = [f"{key}=NAME, a game" if isinstance(default, dict) else key for key, default in sorted(defaults.items())]
        raise ConfigError(f"game {name} needs parameters; there are (--param, --set run.params): {', '.join(missing)}")
    return given


def _alike(name: str, key: str, value: Any, default: Any) -> Any:
    wanted = type(default)
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is str and type(value) is int:  # a text of digits
        return str(value)
    if type(value) is not wanted:
        raise ConfigError(f"game {name}: parameter {key} is of the kind {wanted.__name__} (default {default!r}), not {value!r}")
    return value


def _load(name: str, pyspiel: Any, params: dict[str, Any]) -> Any:
    short = name.removeprefix(PREFIX)
    if params and (reason := _probed(short, json.dumps(params))):
        raise ConfigError(f"game {name} does not take {params}: {reason}")
    return pyspiel.load_game(short, params) if params else pyspiel.load_game(short)


@lru_cache(maxsize=64)
def _probed(short: str, params: str) -> str:
    """Why open_spiel does not play a game with parameters; a process tries it, since some end the one that does. Empty where it does."""
    command = [sys.executable, "-P", "-c", PROBE, short, params]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"a random game did not end within {PROBE_S:g} s"
    if ended.returncode < 0:
        return f"open_spiel dies of {signal.Signals(-ended.returncode).name}"
    if not ended.returncode:
        return ""
    reason = ended.stderr.rpartition("pyspiel.SpielError: ")[2].splitlines()[0]
    checked = _A_CHECK.sub(r"\1", _A_PLACE.sub("", reason))
    return f"it must hold that {checked}" if checked != reason else reason


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


@dataclass(slots=True)
class _Seen:
    """What some random games show: whether nothing but 0 and 1, the largest number, whether chance acts, and how they end."""

    bits: bool = True
    largest: float = 0.0
    rolls: bool = False
    returns: list[float] = field(default_factory=list)  # of player 0, as shares of the largest utility


def _probe(game: AdaptedGame, name: str, hidden: bool) -> _Seen:
    """Plays some random games; tries the redrawing of secrets too."""
    rng, seen = random.Random(0), _Seen()
    for number in range(PROBE_GAMES):
        state = game.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                seen.rolls = True
            else:
                _record(state, seen)
                if hidden and number == 0:
                    _redraw(state, name)
            state.apply_action(rng.choice(state.legal_actions()))
        seen.returns.append(state.returns()[0])
    return seen


def _record(state: AdaptedState, seen: _Seen) -> None:
    numbers = state.raw_observation(state.current_player())
    seen.bits = seen.bits and bool(((numbers == 0.0) | (numbers == 1.0)).all())
    seen.largest = max(seen.largest, float(np.abs(numbers).max()))


def _redrawn(state: Any, player: int, rng: Callable[[], float]) -> Any:
    """The same actions after other chance, drawn until the player knows what he knew."""
    seen, game, dice = state.information_state_string(player), state.get_game(), random.Random(rng())
    for _ in range(REDRAWS):
        twin = game.new_initial_state()
        for action in state.history():
            twin.apply_action(dice.choices(*zip(*twin.chance_outcomes(), strict=True))[0] if twin.is_chance_node() else action)
        if twin.information_state_string(player) == seen:
            return twin
    raise ConfigError(f"{REDRAWS:,} deals did not bring what player {player} knows; choose fewer dice")


def _redraw(state: AdaptedState, name: str) -> None:
    try:
        state.resample_from_infostate(state.current_player(), 1)
    except GameContractError as error:
        raise ConfigError(f"game {name} hides information and open_spiel cannot draw it again ({error})") from None


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
