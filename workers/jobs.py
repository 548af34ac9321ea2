"""Claiming a job and answering for it: what both kinds of task share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from azq import logs
from azq.errors import AzqError, BrokerError, LeaseLost, reason_of
from azq.ledger.types import Lease
from workers.context import Context

log = logs.get(__name__)
NO_LIMIT = 2**31  # a stopped worker is not the job's fault


class Interrupted(AzqError):
    """The worker is stopping; the job is for somebody else."""


@contextmanager
def held_job(context: Context, job_id: str, attempt: int) -> Iterator[Lease | None]:
    """The lease on a job, or None where somebody else has it, it is over, or this message is stale.

    An error inside ends the job's attempt with the reason, in the ledger and in the log; the ledger gives its games back to the
    pool and decides whether it is tried again. A lost lease or broker is no error of the job: its lease runs out by itself.
    """
    if context.stopping():
        yield None  # the message of a stopping worker is not lost: nobody claimed the job, so it is published again
        return
    context.busy(job_id, attempt)  # before the claim: whoever dies in between leaves a lease that the main process knows of
    try:
        lease = context.ledger.claim(job_id, attempt, context.owner, context.config.daemon.lease_s)
        if lease is None:
            log.info("claim_refused", job=job_id, attempt=attempt)
            yield None
            return
        with _answering(context, lease):
            yield lease
    finally:
        context.idle()


@contextmanager
def _answering(context: Context, lease: Lease) -> Iterator[None]:
    try:
        yield
    except (LeaseLost, BrokerError) as error:
        log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(error))
    except Interrupted as error:
        _fail(context, lease, error, NO_LIMIT)
    except Exception as error:
        _fail(context, lease, error, context.config.daemon.max_attempts)


def _fail(context: Context, lease: Lease, error: Exception, max_attempts: int) -> None:
    reason = reason_of(error)
    expected = isinstance(error, AzqError)
    log.error("job_failed", job=lease.job.job_id, attempt=lease.attempt, reason=reason, exc_info=None if expected else error)
    try:
        context.ledger.fail(lease, reason, max_attempts=max_attempts)
    except (LeaseLost, BrokerError) as lost:
        log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(lost))
