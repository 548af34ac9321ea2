"""The games azq can train on, by name: rules and observation encoding come from `azq._core`."""

from __future__ import annotations

from azq import _core
from azq._core import CHANCE_PLAYER, TERMINAL_PLAYER, Game, State

__all__ = ["CHANCE_PLAYER", "TERMINAL_PLAYER", "Game", "State", "load", "names"]


def names() -> tuple[str, ...]:
    """The names `load` knows, in alphabetical order."""
    return tuple(_core.game_names())


def load(name: str, /, **params: int | float | str | bool) -> Game:
    """The rules of one game, e.g. `load("connect_four")`.

    Raises `UnknownGameError` naming the known games, and `ConfigError` for a parameter the game does not have.
    """
    return _core.load_game(name, params)
