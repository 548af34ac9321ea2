"""States of a run as values, for tests of the ledger's rules alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from azq.ledger.rules.state import JobRow, State
from azq.ledger.types import JobState, JobView, Lease
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord

QUEUED, LEASED, DONE, FAILED, CANCELLED = JobState


def run(*rows: JobRow, **fields: object) -> State:
    """The run `r` with these jobs; `queue` and `ended` follow from them unless they are given."""
    jobs = {int(row.view.job.job_id.removeprefix("r:")): row for row in rows}
    active = [(row.view.created_ms, number) for number, row in jobs.items() if row.view.state in (QUEUED, LEASED)]
    ended = [number for number, row in jobs.items() if row.view.state not in (QUEUED, LEASED)]
    implied = {"jobs": jobs, "queue": tuple(active), "ended": tuple(ended), "job_seq": max(jobs, default=0)}
    return State(RunRecord("r", b"{}", {}, "", 1), **{"changed_ms": 0, **implied, **fields})  # type: ignore[arg-type]


def job(number: int, state: JobState = QUEUED, kind: Kind = Kind.SELFPLAY, **fields: Any) -> JobRow:
    """One job as an old attempt 3 left it; `fields` are of the row or of its view."""
    named = Job(f"r:{number}", "r", kind, "cpu")
    of_row = {name: fields.pop(name) for name in ("failures", "cancel", "released", "held") if name in fields}
    owner, until_ms = ("w", 9_000) if state is LEASED else ("", 0)
    seen = {"owner": owner, "lease_until_ms": until_ms, "published_ms": 20, "claimed_ms": 30, "error": "", **fields}
    view = JobView(named, state, **{"attempt": 3, "created_ms": 10, "ended_ms": 0, **seen})
    return JobRow(view, **{**of_row, "held": frozenset(of_row.get("held", ()))})


def lease(number: int = 1, attempt: int = 3, owner: str = "w", kind: Kind = Kind.SELFPLAY) -> Lease:
    """A lease of five seconds on `job`."""
    return Lease(Job(f"r:{number}", "r", kind, "cpu"), attempt, owner, 5.0)


def games(uids: Iterable[int]) -> dict[int, GameRecord]:
    """Open games without moves."""
    return {uid: GameRecord(uid) for uid in uids}
