"""Runs: create, list, show, pause, resume, finish; and everything that belongs to one run."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from azq.arena.rating import rate
from azq.config import dump_run, parse_run
from azq.errors import ConfigError, StateConflict, UnknownGameError
from azq.games.loading import is_python_file
from azq.ledger.types import RunState
from azq.wire.messages import RunRecord
from daemon import observe
from daemon.api.schemas import ArenaOut, GradeOut, MatchOut, NewRun, Reason, Resumption, RunOut, WeightsOut, goals
from daemon.api.scopes import OPERATE, READ
from daemon.api.services import Services, Use
from daemon.summary import LedgerStatus, RunStatus, ledger_status, summarise

router = APIRouter(prefix="/v1/runs", tags=["runs"])
Count = Annotated[int, Query(ge=1, le=observe.RESULTS_READ)]


@router.post("", status_code=http.HTTP_201_CREATED, dependencies=[OPERATE])
def create_run(body: NewRun, use: Use) -> RunOut:
    """Creates a run, which starts at once; its name must be new."""
    sections = parse_run(body.sections, "request body, sections")
    names = use.game_names()
    if is_python_file(sections.run.game):
        raise ConfigError("games in Python files are started with `azq up`: no caller over the network makes workers import a file")
    if sections.run.game not in names and not sections.run.game.startswith("openspiel:"):
        raise UnknownGameError(f"no game {sections.run.game!r}; there are: {', '.join(names)}")
    record = RunRecord(
        run=body.name,
        sections=json.dumps(dump_run(sections)).encode(),
        until=goals(body.until),
        directory=body.directory or str((use.home / body.name).absolute()),
        created_ms=use.clock_ms(),
    )
    return RunOut.of(use.ledger.create_run(record))


@router.get("", dependencies=[READ])
def list_runs(use: Use) -> list[RunOut]:
    """All runs, by name."""
    return [RunOut.of(view) for view in sorted(use.ledger.runs(), key=lambda view: view.record.run)]


@router.get("/{run}", dependencies=[READ])
def show_run(run: str, use: Use) -> RunOut:
    """One run with its settings."""
    return RunOut.of(use.ledger.run(run))


@router.post("/{run}/pause", dependencies=[OPERATE])
def pause_run(run: str, use: Use, body: Reason | None = None) -> RunOut:
    """Pauses a run: its open games go back to the pool at their workers' next journal write."""
    return _change(use, run, RunState.PAUSED, body)


@router.post("/{run}/resume", dependencies=[OPERATE])
def resume_run(run: str, use: Use, body: Resumption | None = None) -> RunOut:
    """Goes on with a paused, finished or failed run, towards other goals where they are given."""
    if use.ledger.run(run).state is RunState.RUNNING:
        raise StateConflict(f"run {run} is running already")
    if body is not None and body.until is not None:
        use.ledger.update_run_until(run, goals(body.until))
    return RunOut.of(use.ledger.set_run_state(run, RunState.RUNNING))


@router.post("/{run}/finish", dependencies=[OPERATE])
def finish_run(run: str, use: Use, body: Reason | None = None) -> RunOut:
    """Ends a run; it can be resumed."""
    return _change(use, run, RunState.FINISHED, body)


@router.get("/{run}/status", dependencies=[READ])
def run_status(run: str, use: Use) -> RunStatus:
    """Everything the live table of `azq up` shows."""
    facts = observe.gather(use.ledger, use.bus, run)
    return summarise(facts, use.clock_ms(), rate(facts.matches), use.health.conditions(run))


@router.get("/{run}/ledger", tags=["ledger"], dependencies=[READ])
def run_ledger(run: str, use: Use) -> LedgerStatus:
    """The proof that no game was lost: opened = finished + open + abandoned, finished = inserted + in transit."""
    use.ledger.run(run)
    return ledger_status(use.ledger.counts(run))


@router.get("/{run}/weights", tags=["weights"], dependencies=[READ])
def run_weights(run: str, use: Use, limit: Count = 20) -> list[WeightsOut]:
    """The newest published weights, newest first."""
    use.ledger.run(run)
    return [WeightsOut.of(event) for event in observe.read_weights(use.bus, run, limit)]


@router.get("/{run}/matches", tags=["matches"], dependencies=[READ])
def run_matches(run: str, use: Use, limit: Count = 200) -> ArenaOut:
    """Results of the newest evaluation jobs, and ratings with 95 % intervals."""
    use.ledger.run(run)
    matches, grades = observe.read_results(use.bus, run)
    return ArenaOut(
        matches=[MatchOut.of(match) for match in matches[:limit]],
        grades=[GradeOut.of(grade) for grade in grades[:limit]],
        ratings=rate(matches),
    )


def _change(use: Services, run: str, state: RunState, body: Reason | None) -> RunOut:
    return RunOut.of(use.ledger.set_run_state(run, state, body.reason if body and body.reason else "asked for over REST"))
