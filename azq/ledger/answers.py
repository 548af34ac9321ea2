"""From what a script answered to the nouns of the ledger, and back to job numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from azq.errors import NotFound
from azq.ledger.types import Job, JobState, JobView, LedgerCounts, RunState, RunView
from azq.wire.codec import decode
from azq.wire.messages import RunRecord


def split_job_id(job_id: str) -> tuple[str, str]:
    """Run and number of a job id, `<run>:<number>`. Raises `NotFound` for anything else."""
    run, separator, number = job_id.rpartition(":")
    if not separator or not run or not number.isascii() or not number.isdigit():
        raise NotFound(f"no job {job_id!r}; job ids look like connect_four:17")
    return run, number


def fields_of(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A hash from the flat list that a script answers."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def job_view(run: str, answer: Sequence[Any]) -> JobView:
    """A job from (number, flat hash)."""
    number, flat = answer
    values = fields_of(flat)
    job = Job(
        job_id=f"{run}:{number.decode()}",
        run=run,
        kind=values["kind"].decode(),
        tag=values["tag"].decode(),
        priority=int(values["priority"]),
        games=int(values["games"]),
        slice_s=float(values["slice_s"]),
        payload=values["payload"],
    )
    return JobView(
        job=job,
        state=JobState(values["state"].decode()),
        attempt=int(values["attempt"]),
        owner=values["owner"].decode(),
        lease_until_ms=int(values["lease_until_ms"]),
        published_ms=int(values["published_ms"]),
        created_ms=int(values["created_ms"]),
        claimed_ms=int(values["claimed_ms"]),
        ended_ms=int(values["ended_ms"]),
        error=values["error"].decode(),
    )


def run_view(now_ms: int, values: Mapping[str, bytes]) -> RunView:
    """A run from its hash; the time it has been running goes on until `now_ms`. Raises `WireError` for an unreadable record."""
    state = RunState(values["state"].decode())
    changed_ms = int(values["changed_ms"])
    running_ms = max(0, now_ms - changed_ms) if state is RunState.RUNNING else 0
    return RunView(
        record=decode(values["record"], RunRecord),
        state=state,
        reason=values["reason"].decode(),
        active_ms=int(values["active_ms"]) + running_ms,
        changed_ms=changed_ms,
    )


def counts_of(answer: Sequence[bytes]) -> LedgerCounts:
    """The counts in the order of the script `COUNTS`."""
    opened, finished, open_games, abandoned, inserted, in_transit, duplicates = (int(value) for value in answer)
    return LedgerCounts(opened, finished, open_games, abandoned, inserted, in_transit, duplicates)
