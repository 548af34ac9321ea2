"""Jobs: enqueue, list, show, revoke."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from azq.config import RunSections, parse_run
from azq.errors import StateConflict, UnknownTagError
from azq.ledger.types import RunState
from daemon import observe
from daemon.api.schemas import JobOut, Name, NewJob
from daemon.api.scopes import OPERATE, READ
from daemon.api.services import Use
from daemon.fleet import eval_tag, live_tags
from daemon.state import EVAL, SELFPLAY, queue_of

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("", status_code=http.HTTP_201_CREATED, dependencies=[OPERATE])
def enqueue_job(body: NewJob, use: Use) -> JobOut:
    """Enqueues a job; the daemon hands it to Celery at its next tick. 409 when no live worker takes its queue."""
    view = use.ledger.run(body.run)
    if view.state is not RunState.RUNNING:
        raise StateConflict(f"run {body.run} is {view.state}; resume it first")
    sections = parse_run(json.loads(view.record.sections), f"sections of run {body.run}")
    workers = observe.read_workers(use.bus)
    tag = body.tag or (eval_tag(workers, sections.run.tag) if body.kind == EVAL else sections.run.tag)
    tags = live_tags(workers, body.kind)
    if tag not in tags:
        raise UnknownTagError(
            f"no live worker takes {queue_of(body.kind, tag)}; live {body.kind} tags: {', '.join(tags) or 'none'}; "
            f"start `azq worker --queues {queue_of(body.kind, tag)}` on such a host, or ask for one of these"
        )
    games, slice_s = _size(body, sections)
    queued = use.ledger.enqueue(body.run, body.kind, tag, priority=body.priority, games=games, slice_s=slice_s, payload=body.payload())
    return JobOut.of(queued)


@router.get("", dependencies=[READ])
def list_jobs(use: Use, run: Name | None = None, active: bool = True, limit: Annotated[int, Query(ge=1, le=1000)] = 200) -> list[JobOut]:
    """Queued and leased jobs; with `active=false` the newest ended ones too."""
    if run is not None:
        use.ledger.run(run)
    return [JobOut.of(view) for view in use.ledger.jobs(run, active_only=active, limit=limit)]


@router.get("/{job_id}", dependencies=[READ])
def show_job(job_id: str, use: Use) -> JobOut:
    """One job."""
    return JobOut.of(use.ledger.job(job_id))


@router.post("/{job_id}/revoke", dependencies=[OPERATE])
def revoke_job(job_id: str, use: Use) -> JobOut:
    """Takes a job back: a queued one at once, a leased one at its worker's next journal write. Its games go back to the pool."""
    return JobOut.of(use.ledger.cancel(job_id))


def _size(body: NewJob, sections: RunSections) -> tuple[int, float]:
    """Games and slice of a job, the run's own where the request names none."""
    if body.kind == SELFPLAY:
        return body.games or sections.selfplay.games_in_flight, body.slice_s or sections.selfplay.slice_s
    return (body.match.games if body.match else 0), 0.0
