"""Jobs: enqueue, list, show, revoke."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from azq.config import Tag
from azq.errors import StateConflict, UnknownTagError
from azq.ledger.records import sections_of
from azq.ledger.types import JobState, JobView, RunState
from azq.status.schemas import JobKind, JobOut, Name, NewJob
from azq.status.workers import eval_tag, live_tags
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import Job
from daemon.api.access import OPERATE, READ
from daemon.api.conventions import LINKED, REPLAYS, Creating, Paged
from daemon.api.services import Services, Use

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("", status_code=http.HTTP_201_CREATED, responses=REPLAYS, dependencies=[OPERATE])
def enqueue_job(body: NewJob, use: Use, creation: Creating) -> JobOut:
    """Enqueues a job; the daemon hands it to Celery at its next tick. 409 when no live worker takes its queue."""
    once = creation.once(body)
    view = use.ledger.first_job(body.run, once)
    replayed = view is not None
    if view is None:
        job = _settled(body, use)
        with use.admit_job():
            view, replayed = use.ledger.enqueue_once(once, job)
    creation.note(view.job.job_id, replayed=replayed)
    return JobOut.of(view)


@router.get("", responses=LINKED, dependencies=[READ])
def list_jobs(
    use: Use,
    pages: Paged,
    run: Name | None = None,
    active: bool = True,
    kind: JobKind | None = None,
    tag: Tag | None = None,
    state: JobState | None = None,
    since: Annotated[int, Query(ge=0, lt=2**53, description="Created at this time or later, in ms since 1970.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[JobOut]:
    """Queued and leased jobs, by run, newest first; with `active=false` or the `state` of one, the newest ended ones too."""
    if run is not None:
        use.ledger.run(run)
    active_only = active and state in (None, JobState.QUEUED, JobState.LEASED)
    place = pages.place("jobs", str, int)
    views = (
        view
        for view in _walk(use, run, place, active_only, limit)
        if kind in (None, view.job.kind) and tag in (None, view.job.tag) and state in (None, view.state) and view.created_ms >= since
    )
    return [JobOut.of(view) for view in pages.take("jobs", views, limit, lambda view: (view.job.run, _number(view)))]


@router.get("/{job_id}", dependencies=[READ])
def show_job(job_id: str, use: Use) -> JobOut:
    """One job."""
    return JobOut.of(use.ledger.job(job_id))


@router.post("/{job_id}/revoke", dependencies=[OPERATE])
def revoke_job(job_id: str, use: Use) -> JobOut:
    """Takes a job back: a queued one at once, a leased one at its worker's next journal write. Its games go back to the pool."""
    return JobOut.of(use.ledger.cancel(job_id))


def _walk(use: Services, run: str | None, place: tuple[str, int] | None, active_only: bool, limit: int) -> Iterator[JobView]:
    """Jobs after a place, read run by run and no further than they are asked for."""
    names = [run] if run is not None else [view.record.run for view in use.ledger.runs()]
    for name in names:
        if place is not None and name < place[0]:
            continue
        below = place[1] if place is not None and name == place[0] else None
        while views := use.ledger.jobs_below(name, below, active_only=active_only, limit=limit + 1):
            yield from views
            below = _number(views[-1])


def _number(view: JobView) -> int:
    return int(view.job.job_id.rpartition(":")[2])


def _settled(body: NewJob, use: Services) -> Job:
    """The job, with the run's own tag, games and slice where the request names none. Raises `StateConflict` and `UnknownTagError`."""
    view = use.ledger.run(body.run)
    if view.state is not RunState.RUNNING:
        raise StateConflict(f"run {body.run} is {view.state}; resume it first")
    sections = sections_of(view.record)
    workers = use.workers()
    tag = body.tag or (eval_tag(workers, sections.run.tag) if body.kind == Kind.EVAL else sections.run.tag)
    tags = live_tags(workers, body.kind)
    if tag not in tags:
        raise UnknownTagError(
            f"no live worker takes {queue_name(body.kind, tag)}; live {body.kind} tags: {', '.join(tags) or 'none'}; "
            f"start `azq worker --queues {queue_name(body.kind, tag)}` on such a host, or ask for one of these"
        )
    if body.kind == Kind.SELFPLAY:
        selfplay = sections.selfplay
        return body.job(tag=tag, games=body.games or selfplay.games_in_flight, slice_s=body.slice_s or selfplay.slice_s)
    return body.job(tag=tag, games=body.match.games if body.match else 0, slice_s=0.0)
