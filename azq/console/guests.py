"""What a person at this terminal allows by naming it."""

from __future__ import annotations

from azq.config import Config
from azq.games import GameFiles


def with_game(config: Config, game: str) -> Config:
    """The settings with which his processes run this game too, where it is a Python file; that file and no other."""
    named = tuple(path.absolute() for path in GameFiles.named(game).allowed)
    files = tuple(dict.fromkeys((*config.worker.game_files, *named)))
    return config.model_copy(update={"worker": config.worker.model_copy(update={"game_files": files})})
