"""Runs: create, list, show, pause, resume, finish; and everything that belongs to one run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Response
from fastapi import status as http

from azq.config import RunSections, merge, parse_run
from azq.errors import ConfigError, StateConflict, UnknownGameError, meant
from azq.games import openspiel
from azq.games.files import is_python_file
from azq.goals import Done
from azq.ledger.records import record_of
from azq.ledger.types import RunState
from azq.presets import preset
from azq.status import observe
from azq.status.curves import MOST_WEIGHTS
from azq.status.results import ArenaOut, GradeOut, MatchOut, trends_out
from azq.status.schemas import NewRun, Reason, Resumption, RunChange, RunFigures, RunOut, goals
from azq.status.spending import RunCost, cost_of
from azq.status.state import NOTHING_SPENT
from azq.status.strength import game_of, headline_kind, measures, trends
from azq.status.summary import LedgerStatus, RunStatus, ledger_status, network_status, summarise
from azq.tracing import CREATE_RUN, TRACES, trace_of
from azq.wire import keys
from daemon.api.access import OPERATE, READ
from daemon.api.conventions import LINKED, REPLAYS, Creating, Paged, answer
from daemon.api.services import Services, Use
from daemon.api.weights import forget_run

router = APIRouter(prefix="/v1/runs", tags=["runs"])
Count = Annotated[int, Query(ge=1, le=observe.RESULTS_READ)]


@router.post("", status_code=http.HTTP_201_CREATED, responses=REPLAYS, dependencies=[OPERATE])
def create_run(body: NewRun, use: Use, creation: Creating) -> RunOut:
    """Creates a run, which starts at once; its name must be new. With `game` it has that game's preset below its `sections`."""
    once = creation.once(body)
    view = use.ledger.first_run(body.name, once)
    replayed = view is not None
    if view is None:
        sections = _sections(body, use)
        # One of the same name is a conflict of another kind.
        taken = {other.record.run: other.record.directory for other in use.ledger.runs() if other.record.run != body.name}
        folder = folder_of(body.name, body.directory, use.home, taken)
        record = record_of(body.name, sections, folder, use.clock_ms(), goals(body.until))
        with use.admit_run():
            view, replayed = use.ledger.create_run_once(record, once)
    creation.note(body.name, replayed=replayed)
    created_ms = view.record.created_ms
    TRACES.add((CREATE_RUN,), [] if replayed else [trace_of("run", body.name, created_ms)], created_ms * 1_000_000)
    return RunOut.of(view)


@router.get("", responses=LINKED, dependencies=[READ])
def list_runs(
    use: Use,
    pages: Paged,
    state: RunState | None = None,
    game: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    figures: Annotated[bool, Query(description="With games, the game's measure and its way so far.")] = False,
) -> list[RunOut]:
    """All runs, by name."""
    place = pages.place("runs", str)
    views = sorted(use.ledger.runs(), key=lambda view: view.record.run)
    listed = (
        run.model_copy(update={"figures": _figures(run, use)}) if figures else run
        for run in (RunOut.of(view) for view in views if place is None or view.record.run > place[0])
        if state in (None, run.state) and game in (None, run.game)
    )
    return pages.take("runs", listed, limit, lambda run: (run.name,))


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
    with use.admit_run():
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
    facts = observe.gather(use.ledger, use.bus, run, (), use.standings, use.firsts)
    team = use.team(run)
    status = summarise(facts, use.clock_ms(), use.health.conditions(run), team)
    return answer(replace(status, workers=cast(Any, team.encoded)))


@router.get("/{run}/cost", dependencies=[READ])
def run_cost(run: str, use: Use) -> RunCost:
    """What its machines cost so far, by component, and when it ends at its present pace; zeros before the first count."""
    facts = observe.gather(use.ledger, use.bus, run, (), use.standings, use.firsts)
    cost = summarise(facts, use.clock_ms(), team=use.team(run)).cost
    return cost or cost_of(NOTHING_SPENT, {}, Done.of(0, 0, 0), {}, running=False)


@router.delete("/{run}", status_code=http.HTTP_204_NO_CONTENT, dependencies=[OPERATE])
def delete_run(run: str, use: Use) -> None:
    """Forgets a run that is paused, finished or failed, with all that the control plane keeps of it; its folder stays. May be repeated."""
    forget_run(use, run)


@router.get("/{run}/ledger", tags=["ledger"], dependencies=[READ])
def run_ledger(run: str, use: Use) -> LedgerStatus:
    """The proof that no game was lost: opened = finished + open + abandoned, finished = inserted + in transit."""
    return ledger_status(use.ledger.counts(run))


@router.get("/{run}/matches", tags=["matches"], responses=LINKED, dependencies=[READ])
def run_matches(run: str, use: Use, pages: Paged, limit: Count = 200) -> ArenaOut:
    """Results of evaluation jobs, newest first, at most `limit` together or one match in all its parts; ratings from the newest of all."""
    game, standing = game_of(use.ledger.run(run).record), observe.read_standing(use.bus, run, use.standings)
    curves = trends(game, standing)
    matches, grades = observe.split_results(pages.newest("results", use.bus, keys.results(run), limit, observe.uncut))
    return ArenaOut(
        matches=[MatchOut.of(match) for match in matches],
        grades=[GradeOut.of(grade) for grade in grades],
        ratings=list(standing.ratings),
        scores=list(standing.scores),
        headline=headline_kind(game, curves),
        trends=trends_out(curves, observe.read_weights(use.bus, run, MOST_WEIGHTS)),
        strangers=list(standing.strangers),
    )


def _figures(run: RunOut, use: Services) -> RunFigures:
    standing = observe.read_standing(use.bus, run.name, use.standings)
    curves = trends(run.game, standing)
    first = measures(run.game, curves)[0]
    way = [measure.value for measure in curves.get(first.kind, ()) if measure.value is not None]
    return RunFigures(games=use.ledger.counts(run.name).finished, measure=first.name, text=first.text, way=way[-RunFigures.MOST :])


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


def _check_game(game: str, params: Mapping[str, Any], use: Services) -> None:
    names = use.game_names()
    if is_python_file(game):
        raise ConfigError("games in Python files are started with `azq up`: no caller over the network makes workers import a file")
    if game.startswith(openspiel.PREFIX):
        openspiel.check_openspiel(game, params)
    elif game not in names:
        raise UnknownGameError(f"no game {game!r}; there are: {', '.join(names)}{meant(game, names)}")


def _change(use: Services, run: str, state: RunState, body: Reason | None) -> RunOut:
    return RunOut.of(use.ledger.set_run_state(run, state, body.reason if body and body.reason else "asked for over REST"))


def folder_of(run: str, directory: str, home: Path, taken: Mapping[str, str]) -> str:
    """The folder of a new run, absolute; `directory` is empty for the usual one, `taken` are the folders of the other runs by name.

    Raises `ConfigError` for one outside of `home`, one of azq's own, and one that holds, or lies in, that of another run.
    """
    folder = Path(os.path.abspath(home / (directory or run)))
    place, real_home = _real(folder), _real(home)
    below = place.relative_to(real_home).parts if place.is_relative_to(real_home) else ()
    if directory and (not below or any(part.startswith(".") for part in below)):
        raise ConfigError(
            f"directory {directory!r} is no folder for a run below {home.absolute()}, the daemon's home; leave it out, or name one there"
        )
    for other, theirs in taken.items():
        if theirs and (place.is_relative_to(_real(theirs)) or _real(theirs).is_relative_to(place)):
            raise ConfigError(f"directory {str(folder)!r} is that of run {other}, or holds it, or lies in it; name another")
    return str(folder)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises where links run in a circle
