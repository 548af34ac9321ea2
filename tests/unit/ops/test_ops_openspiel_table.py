"""The table of docs/games/openspiel.md is what its script writes, tried on a sample of quick games."""

from __future__ import annotations

import openspiel_table
import pytest

from azq import games
from azq.games.check import check

pyspiel = pytest.importorskip("pyspiel")

ROWS = openspiel_table.PAGE.read_text("utf-8").partition(openspiel_table.HEADER)[2].splitlines()
LISTED = {name.strip("` "): row.split("|")[1].strip() for row in ROWS for name in row.split("|")[2].split(",")}


def test_every_registered_game_stands_in_it_as_the_script_writes_it() -> None:
    # Where a test has imported them, OpenSpiel's games in Python are registered, too.
    registered = {name for name in pyspiel.registered_names() if name != "chat_game" and not name.startswith("python_")}
    assert set(LISTED) == registered
    assert openspiel_table.table(LISTED).removeprefix(openspiel_table.HEADER).splitlines() == ROWS


@pytest.mark.parametrize("name", ["catch", "nim", "kuhn_poker", "matrix_pd", "misere", "efg_game", "crossword", "deep_sea", "coin_game"])
def test_a_quick_games_verdict_is_that_of_now(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openspiel_table, "check_apart", lambda game, params, count: check(games.load(game), count))
    assert openspiel_table.verdict(name) == LISTED[name]
