"""The Celery task `azq.selfplay`: one slice of one job."""

from __future__ import annotations

import contextlib

from azq import logs
from azq.actor import Progress, SelfPlay, SliceEnd
from azq.actor.pinning import pinned
from workers.context import Context
from workers.jobs import held_job

log = logs.get(__name__)


def run(context: Context, job_id: str, attempt: int) -> SliceEnd | None:
    """Plays the slice; None where the claim was refused. Every error but lost leases and brokers is written to the job."""
    with held_job(context, job_id, attempt) as lease:
        if lease is None:
            return None
        view = context.ledger.run(lease.job.run)
        record, sections = view.record, context.sections_now(view)
        game = context.game(sections)
        evaluator = context.evaluator(record, sections, game)
        context.meter.begin()
        context.phases.restart()

        def report(progress: Progress) -> None:
            figures = context.meter.figures(progress, record.run, resent=evaluator.resent, phases=context.phases.shares())
            context.board.write(context.slot, figures)

        settings = sections.selfplay
        try:
            with pinned(context.slot, settings.threads) if settings.pin_threads else contextlib.nullcontext():
                return SelfPlay(
                    context.ledger,
                    lease,
                    sections,
                    game,
                    evaluator,
                    context.arenas,
                    should_stop=context.stopping,
                    report=report,
                    phases=context.phases,
                    made_ms=record.created_ms,
                ).run()
        finally:
            evaluator.close()
    return None
