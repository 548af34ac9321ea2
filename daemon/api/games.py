"""Recorded games, read from the run's segment log on this host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from azq import games
from azq.config import RunConfig, parse_run
from azq.errors import AzqError
from azq.games.loading import is_python_file
from azq.ledger.types import RunView
from azq.replay.browse import Place
from daemon.api.scopes import READ
from daemon.api.services import Use
from daemon.viewer import GameSummary, GameView, summary, view

router = APIRouter(prefix="/v1/runs", tags=["games"])


class GamesOut(BaseModel):
    """Games, newest first; `next` goes on where the list ends."""

    games: list[GameSummary]
    next: str | None


@router.get("/{run}/games", dependencies=[READ])
def list_games(
    run: str,
    use: Use,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str, Query(pattern=r"^\d{1,6}:\d{1,9}$", description="`next` of the page before.")] | None = None,
) -> GamesOut:
    """The newest recorded games, in the order in which the learner stored them."""
    segment, _, record = (before or "").partition(":")
    found = use.games_of(_segments(use.ledger.run(run))).newest(limit, Place(int(segment), int(record)) if before else None)
    place = found[-1][0] if len(found) == limit else None
    return GamesOut(games=[summary(event) for _, event in found], next=f"{place.segment}:{place.record}" if place else None)


@router.get("/{run}/games/{uid}", dependencies=[READ])
def show_game(run: str, uid: int, use: Use) -> GameView:
    """One game ply by ply: position, player, action, the search's values and policy target."""
    known = use.ledger.run(run)
    event = use.games_of(_segments(known)).find(uid)
    settings = parse_run(json.loads(known.record.sections), f"sections of run {run}").run
    rules, note = _rules(settings)
    return view(settings.game, rules, event, note)


def _segments(known: RunView) -> Path:
    return Path(known.record.directory) / "segments"


def _rules(settings: RunConfig) -> tuple[games.Game | None, str]:
    """The game's rules, or why there are none here."""
    if is_python_file(settings.game):
        return None, "positions are not shown: this game is a Python file, and the daemon runs no code of games"
    try:
        return games.load(settings.game, **settings.params), ""
    except AzqError as error:
        return None, f"positions are not shown: {error}"
