"""Recorded games, read from the run's segment log on this host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from azq import games
from azq.config import RunConfig, parse_run
from azq.errors import AzqError, IllegalActionError, WireError
from azq.games.loading import is_python_file
from azq.ledger.types import RunView
from azq.replay.readers import LogPlace
from azq.status.viewer import GameSummary, GameView, summary, view
from daemon.api.paging import LINKED, Cursor, decode_cursor, encode_cursor, link_next, take_page
from daemon.api.scopes import READ
from daemon.api.services import Use

router = APIRouter(prefix="/v1/runs", tags=["games"])


@router.get("/{run}/games", responses=LINKED, dependencies=[READ])
def list_games(
    run: str,
    use: Use,
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Cursor = None,
) -> list[GameSummary]:
    """The recorded games, in the order in which the learner stored them, newest first."""
    place = decode_cursor("games", cursor, int, int)
    found = use.games_of(_segments(use.ledger.run(run))).newest(limit + 1, LogPlace(*place) if place else None)
    page, after = take_page(found, limit, lambda entry: encode_cursor("games", entry[0].segment, entry[0].record))
    link_next(request, response, after)
    return [summary(event) for _, event in page]


@router.get("/{run}/games/{uid}", dependencies=[READ])
def show_game(run: str, uid: int, use: Use) -> GameView:
    """One game ply by ply: position, player, action, the search's values and policy target."""
    known = use.ledger.run(run)
    event = use.games_of(_segments(known)).find(uid)
    settings = parse_run(json.loads(known.record.sections), f"sections of run {run}").run
    rules, note = _rules(settings)
    try:
        return view(settings.game, rules, event, note)
    except (WireError, IllegalActionError) as error:  # recorded under other rules than the run has now
        return view(settings.game, None, event, f"positions are not shown: {error}")


def _segments(known: RunView) -> Path:
    return Path(known.record.directory) / "segments"


def _rules(settings: RunConfig) -> tuple[games.Game | None, str]:
    """The game's rules, or why there are none here."""
    if is_python_file(settings.game):
        return None, "positions are not shown: this game is a Python file, and the daemon runs no code of games"
    try:
        return games.GameFiles().load(settings.game, settings.params), ""
    except AzqError as error:
        return None, f"positions are not shown: {error}"
