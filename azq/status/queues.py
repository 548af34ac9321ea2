"""Queues as operators see them: what waits, what runs, who could take it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from azq.ledger.types import JobState, JobView
from azq.status.offers import live_queues, slots_of
from azq.wire.messages import Heartbeat


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue; slots are shared where a worker takes several."""

    queue: str
    queued: int
    leased: int
    slots: int  # jobs that its live workers can hold at once
    workers: int
    oldest_queued_s: float | None  # age of the job that waits longest; None where none waits


def queue_table(workers: Sequence[Heartbeat], jobs: Sequence[JobView], now_ms: int) -> list[QueueStatus]:
    """Every queue that has a live worker or a job, by name."""
    by_queue: dict[str, list[JobView]] = {queue: [] for queue in live_queues(workers)}
    for view in jobs:
        by_queue.setdefault(view.job.queue, []).append(view)
    return [_status(queue, workers, views, now_ms) for queue, views in sorted(by_queue.items())]


def _status(queue: str, workers: Sequence[Heartbeat], views: Sequence[JobView], now_ms: int) -> QueueStatus:
    waiting = [view.created_ms for view in views if view.state is JobState.QUEUED]
    return QueueStatus(
        queue=queue,
        queued=len(waiting),
        leased=sum(view.state is JobState.LEASED for view in views),
        slots=slots_of(workers, queue),
        workers=sum(queue in beat.queues for beat in workers),
        oldest_queued_s=max(0, now_ms - min(waiting)) / 1000 if waiting else None,
    )
