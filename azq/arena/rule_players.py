"""The rule players of the games that have one: `azq.arena.rules.<game>`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol

from azq import _core
from azq.errors import ConfigError

RULE_BOOKS = {"beasty_bar": "GreedyBeasty", "blob": "RuleBlob"}  # game -> its class


class RuleBook(Protocol):
    """Chooses by rules of thumb."""

    def choose(self, states: Sequence[_core.State]) -> list[int]:
        """One action for each state; what is hidden from its player to move has been drawn anew."""


def rule_book(game: _core.Game) -> RuleBook:
    """The rules of thumb of a game; raises `ConfigError` for a game without."""
    if game.name not in RULE_BOOKS:
        raise ConfigError(f"no rule player for {game.name}; there is one for {', '.join(RULE_BOOKS)}")
    module = importlib.import_module(f"azq.arena.rules.{game.name}")
    book: RuleBook = getattr(module, RULE_BOOKS[game.name])()
    return book
