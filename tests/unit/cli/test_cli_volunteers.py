"""What `azq volunteers show --run` holds against a run's other games."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from replay_games import play_game

from azq import games
from azq.cli.volunteers import _outcomes
from azq.samples.played import PlayedGames, read_games


@pytest.mark.parametrize(("contributor", "mine"), [("ann", 10), ("bob", 0)])
def test_a_contributors_games_are_held_against_all_others(contributor: str, mine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.load("tic_tac_toe")
    events = [play_game(game, uid, weight_version=3) for uid in range(1, 41)]
    events = [msgspec.structs.replace(event, worker="browser:ann") if event.record.uid % 4 == 0 else event for event in events]

    def read(*_: Any) -> tuple[None, PlayedGames]:
        return None, read_games(game, events)

    monkeypatch.setattr("azq.console.samples.read", read)
    settings: Any = None
    found = _outcomes(settings, "r", contributor)
    assert found == {} if not mine else found["games"] == (mine, 40 - mine)
