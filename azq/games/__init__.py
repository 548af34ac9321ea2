"""The games azq can train on, by name: rules and observation encoding come from `azq._core`, a Python file or OpenSpiel."""

from __future__ import annotations

from azq import _core
from azq._core import CHANCE_PLAYER, TERMINAL_PLAYER, Game, State
from azq.games.files import GameFiles

__all__ = ["CHANCE_PLAYER", "TERMINAL_PLAYER", "Game", "GameFiles", "State", "load", "names"]


def names() -> tuple[str, ...]:
    """The names `load` knows, in alphabetical order."""
    return tuple(_core.game_names())


def load(name: str, /, **params: int | float | str | bool) -> Game:
    """The rules of one game: `load("othello", size=6)`, `load("path/to/my_game.py:MyGame")`, `load("openspiel:kuhn_poker")`.

    For names that a person wrote: a Python file is imported. What a record or a caller over the network names goes through the host's
    `GameFiles` instead. Raises `UnknownGameError` naming the known games, `ConfigError` for a parameter the game does not have,
    `GameContractError` for a Python game that breaks the contract and `MissingExtra` where open_spiel is not installed.
    """
    return GameFiles.named(name).load(name, params)
