"""The Celery task `azq.selfplay`: one slice of one job."""

from __future__ import annotations

import contextlib

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
    game = context.game(sections)
    with contextlib.closing(context.evaluator(record, sections, game)) as evaluator:
        context.meter.begin()
        context.phases.restart()

        def report(progress: Progress) -> None:
            rates = context.meter.rates(progress, resent=float(evaluator.resent)) | context.phases.shares()
            context.board.write(context.slot, ChildFigures(True, record.run, progress.weight_version, rates))

        weighed = sections.selfplay.evaluator == "uniform" or bool(read_weights(RedisBus(context.control), record.run))
        slice_ = Slice(lease, sections, game, record.created_ms, patience_s(lease.job, weighed=weighed))
        work = SelfPlay(
            context.ledger,
            slice_,
            evaluator,
            context.arenas,
            should_stop=context.stopping,
            report=report,
            clock=context.clock,
            wait=context.wait,
            phases=context.phases,
        )
        end = work.run()
    if end.stop in (Stop.LEASE_LOST, Stop.BROKER_LOST):
        raise JobFailed(f"{end.stop}: {end.detail}")
    return end


def patience_s(job: Job, *, weighed: bool) -> float:
    """How long a slice may wait for an evaluation: without weights as long as for the limiter, so that another run has its slot."""
    return PATIENCE_S if weighed else job.stall_s or PATIENCE_S
