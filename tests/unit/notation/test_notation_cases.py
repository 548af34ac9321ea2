"""Files as other programs write them, with what has to come of each: the same games, or a refusal that names the place."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from azq import games
from azq.errors import ConfigError
from azq.games import Game
from azq.notation.reading import ReadGame, form_of, read_games

FOLDER = Path(__file__).parents[2] / "cases" / "games"
TABLE = tomllib.loads((FOLDER / "games.toml").read_text("utf-8"))
CASES = [(game, name, wanted) for game, files in TABLE["cases"].items() for name, wanted in files.items()]


@cache
def rules(game: str) -> Game:
    return games.load(TABLE["games"][game]["name"], **TABLE["games"][game]["params"])


def came(game: Game, read: ReadGame, wanted: str) -> Any:
    """What was read, in the table's words."""
    if wanted[0] in "!~":
        mark = "~" if read.stray else "!" if read.problem else "a game"
        return wanted if mark == wanted[0] and wanted[2:] in read.problem and re.search(r"\bbyte \d+: ", read.problem) else read
    line, _, plies = wanted.split()[0].partition("/")
    state, texts = game.new_initial_state(), []
    for action in read.actions:
        texts.append(state.action_to_string(action))
        state.apply_action(action)
    if read.problem or texts != TABLE["lines"][line][: int(plies) if plies else None] or read.over != state.is_terminal():
        return read, texts
    if state.is_terminal():
        return wanted if read.sign in (None, np.sign(state.returns()[0])) else read
    return " ".join([wanted.split()[0], *(() if read.sign is None else "-0+"[read.sign + 1])])


@pytest.mark.parametrize(("game", "name", "wanted"), CASES, ids=[name for _, name, _ in CASES])
def test_a_file_comes_in_as_its_games_or_is_refused_by_place(game: str, name: str, wanted: list[str]) -> None:
    data = (FOLDER / name).read_bytes()
    if wanted[0].startswith("#"):
        with pytest.raises(ConfigError, match=re.escape(wanted[0][2:])):
            list(read_games(form_of(name), rules(game), data))
        return
    found = list(read_games(form_of(name), rules(game), data))
    assert len(found) == len(wanted), found
    assert [came(rules(game), read, each) for read, each in zip(found, wanted, strict=True)] == wanted


def test_every_file_stands_in_the_table_once() -> None:
    assert sorted(name for _, name, _ in CASES) == sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".toml")
