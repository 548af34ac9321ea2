"""The Celery task `azq.selfplay`: one slice of one job, on cores of its own where the run asks for that.

A child keeps to as many cores as it has search threads; its threads, started later, inherit that. The cores come from those the
process may use, in order, so that a worker confined to one NUMA node (numactl, systemd's CPUAffinity) stays there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from azq import logs
from azq.actor import Progress, SelfPlay, Slice, SliceEnd, Stop
from azq.actor.slice import PATIENCE_S
from azq.bus.redis import RedisBus
from azq.errors import JobFailed
from azq.ledger.types import Lease
from azq.status.observe import read_weights
from azq.wire.messages import Job
from workers.children import ChildFigures
from workers.context import Context

log = logs.get(__name__)


def run(context: Context, job_id: str, attempt: int) -> SliceEnd:
    """Plays the slice; raises what `Context.work` does. Every error but lost leases and brokers is written to the job."""
    return context.work(job_id, attempt, lambda lease: _play(context, lease))


def _play(context: Context, lease: Lease) -> SliceEnd:
    view = context.ledger.run(lease.job.run)
    record, sections = view.record, context.sections_now(view)
    game, settings = context.game(sections), sections.selfplay
    with contextlib.closing(context.evaluator(record, sections, game)) as evaluator:
        context.meter.begin()
        context.phases.restart()

        def report(progress: Progress) -> None:
            rates = context.meter.rates(progress, resent=float(evaluator.resent)) | context.phases.shares()
            context.board.write(context.slot, ChildFigures(True, record.run, progress.weight_version, rates))

        weighed = sections.selfplay.evaluator == "uniform" or bool(read_weights(RedisBus(context.control), record.run))
        asked = Slice(lease, sections, game, record.created_ms, patience_s(lease.job, weighed=weighed))
        work = SelfPlay(
            context.ledger, asked, evaluator, context.arenas, should_stop=context.stopping, report=report, phases=context.phases
        )
        with pinned(context.slot, settings.threads) if settings.pin_threads else contextlib.nullcontext():
            end = work.run()
    if end.stop in (Stop.LEASE_LOST, Stop.BROKER_LOST):
        raise JobFailed(f"{end.stop}: {end.detail}")
    return end


def patience_s(job: Job, *, weighed: bool) -> float:
    """How long a slice may wait for an evaluation: without weights as long as for the limiter, so that another run has its slot."""
    return PATIENCE_S if weighed else job.stall_s or PATIENCE_S


def cores_of(slot: int, threads: int, allowed: Collection[int]) -> frozenset[int]:
    """The cores of pool child number `slot`: `threads` neighbours that no other child has, or all where there are too few."""
    first = slot * threads
    chosen = sorted(allowed)[first : first + threads]
    return frozenset(chosen if len(chosen) == threads else allowed)


@contextlib.contextmanager
def pinned(slot: int, threads: int) -> Iterator[frozenset[int]]:
    """Keeps the calling thread, and threads it starts meanwhile, to the child's cores; says so where they do not suffice."""
    allowed = frozenset(os.sched_getaffinity(0))
    cores = cores_of(slot, threads, allowed)
    if (slot + 1) * threads > len(allowed):
        log.warning("not_pinned", slot=slot, threads=threads, cores=len(allowed), remedy="lower worker.concurrency or selfplay.threads")
    os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, allowed)
