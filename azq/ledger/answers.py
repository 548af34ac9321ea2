"""From what a script answered to the nouns of the ledger, and back to job numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec

from azq.errors import NotFound, WireError
from azq.ledger.types import Job, JobState, JobView, LedgerCounts, RunLook, RunState, RunView
from azq.wire.codec import decode, encode
from azq.wire.kinds import Kind
from azq.wire.messages import RunRecord

#: what a job's hash says of it, in the order in which scripts answer and `JobView` has it
JOB_FIELDS = (
    *("spec", "state", "attempt", "owner"),
    *("lease_until_ms", "published_ms", "created_ms", "claimed_ms", "ended_ms", "error"),
)
#: the fields of a `Job` that stand beside its frame: scripts read the first two, an azq of before `spec` reads, and wrote, all of them
SPELT_FIELDS = ("kind", "tag", "priority", "games", "slice_s", "payload")


def split_job_id(job_id: str) -> tuple[str, str]:
    """Run and number of a job id, `<run>:<number>`. Raises `NotFound` for anything else."""
    run, separator, number = job_id.rpartition(":")
    if not separator or not run or not number.isascii() or not number.isdigit():
        raise NotFound(f"no job {job_id!r}; job ids look like connect_four:17")
    return run, number


def fields_of(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A hash from the flat list that a script answers."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


@contextmanager
def _written_by_azq(what: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a field that is not there is None
        raise WireError(f"what the control plane holds of {what} is not what this azq writes: {error!r}") from None


def spelt(job: Job) -> list[str | int | bytes]:
    """A new job's own fields for its hash: names and values in turn."""
    values = [repr(float(job.slice_s)) if name == "slice_s" else getattr(job, name) for name in SPELT_FIELDS]
    return ["spec", encode(job), *chain.from_iterable(zip(SPELT_FIELDS, values, strict=True))]


def job_view(run: str, answer: Sequence[Any]) -> JobView:
    """A job from its number, the values of `JOB_FIELDS` and, without a spec, those of `SPELT_FIELDS`. Raises `WireError` for others."""
    with _written_by_azq(f"a job of run {run}"):
        number, (spec, state, attempt, owner, *times, error), *fields = answer
        job = decode(spec, Job) if spec else _spelt_job(run, *fields)
        named = msgspec.structs.replace(job, job_id=f"{run}:{number.decode()}")
        lease_until_ms, published_ms, created_ms, claimed_ms, ended_ms = map(int, times)
        said = (lease_until_ms, published_ms, created_ms, claimed_ms, ended_ms, error.decode())
        return JobView(named, JobState(state.decode()), int(attempt), owner.decode(), *said)


def _spelt_job(run: str, fields: Sequence[Any]) -> Job:
    kind, tag, priority, games, slice_s, payload = fields
    return Job("", run, Kind(kind.decode()), tag.decode(), int(priority), int(games), float(slice_s), payload)


def new_job(run: str, values: Mapping[str, bytes]) -> JobView:
    """A job from its hash, with its number among the fields."""
    return job_view(run, (values["number"], *([values.get(name) for name in names] for names in (JOB_FIELDS, SPELT_FIELDS))))


def run_view(now_ms: int, values: Mapping[str, bytes]) -> RunView:
    """A run from its hash; the time it has been running goes on until `now_ms`. Raises `WireError` where this is no run's."""
    with _written_by_azq("a run"):
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
    return LedgerCounts(*map(int, answer))


def run_look(run: str, answer: Sequence[Any]) -> RunLook:
    """A run from what the script `LOOK` answers. Raises `WireError` for what cannot be read."""
    now, fields, counts, jobs, ended = answer
    return RunLook(
        view=run_view(int(now), fields_of(fields)),
        counts=counts_of(counts),
        jobs=tuple(job_view(run, item) for item in jobs),
        ended=tuple(job_view(run, item) for item in ended),
    )
