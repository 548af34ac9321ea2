"""Runs: create, list, show, pause, resume, finish; and everything that belongs to one run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi import status as http

from azq.arena.rating import rate
from azq.bus.redis import order
from azq.config import RunSections, dump_run, merge, parse_run
from azq.errors import ConfigError, StateConflict, UnknownGameError
from azq.games import openspiel
from azq.games.files import is_python_file
from azq.ledger.types import RunState
from azq.presets import preset
from azq.status import observe
from azq.status.network import network_status
from azq.status.schemas import ArenaOut, GradeOut, MatchOut, NewRun, Reason, Resumption, RunChange, RunOut, goals
from azq.status.summary import LedgerStatus, RunStatus, ledger_status, summarise
from azq.wire import keys
from azq.wire.messages import RunRecord
from daemon.api.answer import answer
from daemon.api.folders import folder_of
from daemon.api.forget import forget_run
from daemon.api.idempotency import REPLAYS, IdempotencyKey, mark_replayed, request_of
from daemon.api.paging import LINKED, Cursor, decode_cursor, encode_cursor, link_next, take_page
from daemon.api.scopes import OPERATE, READ
from daemon.api.services import Services, Use

router = APIRouter(prefix="/v1/runs", tags=["runs"])
Count = Annotated[int, Query(ge=1, le=observe.RESULTS_READ)]


@router.post("", status_code=http.HTTP_201_CREATED, responses=REPLAYS, dependencies=[OPERATE])
def create_run(body: NewRun, use: Use, request: Request, response: Response, idempotency_key: IdempotencyKey = None) -> RunOut:
    """Creates a run, which starts at once; its name must be new. With `game` it has that game's preset below its `sections`."""
    once = request_of("POST /v1/runs", idempotency_key, body)
    view = use.ledger.first_run(body.name, once)
    replayed = view is not None
    if view is None:
        record = RunRecord(
            run=body.name,
            sections=json.dumps(dump_run(_sections(body, use))).encode(),
            until=goals(body.until),
            directory=folder_of(body.name, body.directory, use.home, _folders(use, body.name)),
            created_ms=use.clock_ms(),
        )
        with use.admission.run():
            view, replayed = use.ledger.create_run_once(record, once)
    request.state.about = body.name
    mark_replayed(response, replayed)
    return RunOut.of(view)


@router.get("", responses=LINKED, dependencies=[READ])
def list_runs(
    use: Use,
    request: Request,
    response: Response,
    state: RunState | None = None,
    game: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    cursor: Cursor = None,
) -> list[RunOut]:
    """All runs, by name."""
    place = decode_cursor("runs", cursor, str)
    views = sorted(use.ledger.runs(), key=lambda view: view.record.run)
    found = (
        run
        for run in (RunOut.of(view) for view in views if place is None or view.record.run > place[0])
        if state in (None, run.state) and game in (None, run.game)
    )
    page, after = take_page(found, limit, lambda run: encode_cursor("runs", run.name))
    link_next(request, response, after)
    return page


@router.get("/{run}", dependencies=[READ])
def show_run(run: str, use: Use) -> RunOut:
    """One run with its settings, and the present size of its network."""
    view = use.ledger.run(run)
    newest = observe.read_weights(use.bus, run)
    return RunOut.of(view, network_status(view.record, newest[0] if newest else None))


@router.patch("/{run}", dependencies=[OPERATE])
def change_run(run: str, body: RunChange, use: Use) -> RunOut:
    """Gives a run other goals, whatever state it is in."""
    return RunOut.of(use.ledger.update_run_until(run, goals(body.until)))


@router.post("/{run}/pause", dependencies=[OPERATE])
def pause_run(run: str, use: Use, body: Reason | None = None) -> RunOut:
    """Pauses a run: its open games go back to the pool at their workers' next journal write."""
    return _change(use, run, RunState.PAUSED, body)


@router.post("/{run}/resume", dependencies=[OPERATE])
def resume_run(run: str, use: Use, body: Resumption | None = None) -> RunOut:
    """Goes on with a paused, finished or failed run, towards other goals where they are given."""
    if use.ledger.run(run).state is RunState.RUNNING:
        raise StateConflict(f"run {run} is running already")
    with use.admission.run():
        if body is not None and body.until is not None:
            use.ledger.update_run_until(run, goals(body.until))
        return RunOut.of(use.ledger.set_run_state(run, RunState.RUNNING))


@router.post("/{run}/finish", dependencies=[OPERATE])
def finish_run(run: str, use: Use, body: Reason | None = None) -> RunOut:
    """Ends a run; it can be resumed."""
    return _change(use, run, RunState.FINISHED, body)


@router.get("/{run}/status", response_model=RunStatus, dependencies=[READ])
def run_status(run: str, use: Use) -> Response:
    """Everything the live table of `azq up` shows."""
    facts = observe.gather(use.ledger, use.bus, run, (), use.standings)
    team = use.team(run)
    status = summarise(facts, use.clock_ms(), (), use.health.conditions(run), team)
    return answer(replace(status, workers=cast(Any, team.encoded)))


@router.delete("/{run}", status_code=http.HTTP_204_NO_CONTENT, dependencies=[OPERATE])
def delete_run(run: str, use: Use) -> None:
    """Forgets a run that is paused, finished or failed, with all that the control plane keeps of it; its folder stays. May be repeated."""
    forget_run(use, run)


@router.get("/{run}/ledger", tags=["ledger"], dependencies=[READ])
def run_ledger(run: str, use: Use) -> LedgerStatus:
    """The proof that no game was lost: opened = finished + open + abandoned, finished = inserted + in transit."""
    return ledger_status(use.ledger.counts(run))


@router.get("/{run}/matches", tags=["matches"], responses=LINKED, dependencies=[READ])
def run_matches(run: str, use: Use, request: Request, response: Response, limit: Count = 200, cursor: Cursor = None) -> ArenaOut:
    """Results of evaluation jobs, newest first, at most `limit` together, and ratings with 95 % intervals from the newest of all."""
    use.ledger.run(run)
    place = decode_cursor("results", cursor, int, int)
    before = f"{place[0]}-{place[1]}" if place else None
    page, after = take_page(
        use.bus.newest(keys.results(run), limit + 1, before=before), limit, lambda entry: encode_cursor("results", *order(entry.id))
    )
    link_next(request, response, after)
    matches, grades = observe.split_results(page)
    return ArenaOut(
        matches=[MatchOut.of(match) for match in matches],
        grades=[GradeOut.of(grade) for grade in grades],
        ratings=rate(observe.read_results(use.bus, run)[0]),
    )


def _sections(body: NewRun, use: Services) -> RunSections:
    """Settings of a new run. Raises `ConfigError`, `UnknownGameError`."""
    if body.game is not None:
        _check_game(body.game, {}, use)
    values = merge(preset(body.game, body.preset) if body.game is not None else {}, body.sections)
    sections = parse_run(values, "request body, sections")
    if body.game not in (None, sections.run.game):
        raise ConfigError(f"request body: game is {body.game!r} and sections.run.game is {sections.run.game!r}; name one")
    _check_game(sections.run.game, sections.run.params, use)
    return sections


def _folders(use: Services, run: str) -> dict[str, str]:
    """Those of all other runs; one of the same name is a conflict of another kind."""
    return {view.record.run: view.record.directory for view in use.ledger.runs() if view.record.run != run}


def _check_game(game: str, params: Mapping[str, Any], use: Services) -> None:
    names = use.game_names()
    if is_python_file(game):
        raise ConfigError("games in Python files are started with `azq up`: no caller over the network makes workers import a file")
    if game.startswith(openspiel.PREFIX):
        openspiel.check_openspiel(game, params)
    elif game not in names:
        raise UnknownGameError(f"no game {game!r}; there are: {', '.join(names)}")


def _change(use: Services, run: str, state: RunState, body: Reason | None) -> RunOut:
    return RunOut.of(use.ledger.set_run_state(run, state, body.reason if body and body.reason else "asked for over REST"))
