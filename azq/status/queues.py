"""Queues as operators and the daemon see them: slots and tags that live workers offer, what waits, what runs, who could take it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from azq.ledger.types import JobState, JobView
from azq.status.state import Offer, Offering, Sent
from azq.wire.kinds import BROWSER, Kind
from azq.wire.messages import Heartbeat


def staying(workers: Sequence[Heartbeat]) -> Sequence[Heartbeat]:
    """Those whose hosts take on further work."""
    leaving = {beat.host for beat in workers if beat.leaving}
    return [beat for beat in workers if beat.host not in leaving] if leaving else workers


def condense(workers: Iterable[Offering]) -> tuple[Offer, ...]:
    """One offer for each set of queues: what a thousand workers of one kind offer is one value."""
    slots: Counter[tuple[str, ...]] = Counter()
    for beat in workers:
        slots[beat.queues] += beat.slots
    return tuple(Offer(queues, count) for queues, count in sorted(slots.items()) if queues)


def slots_of(workers: Sequence[Offering], queue: str) -> int:
    """Jobs that the live workers of a queue can hold at once."""
    return sum(beat.slots for beat in workers if queue in beat.queues)


def live_queues(workers: Sequence[Offering]) -> tuple[str, ...]:
    """Queues that at least one live worker takes, sorted."""
    return tuple(sorted({queue for beat in workers for queue in beat.queues}))


def live_tags(workers: Sequence[Offering], kind: str) -> tuple[str, ...]:
    """Hardware tags for which a job of this kind finds a live worker, sorted."""
    prefix = f"{kind}."
    return tuple(queue.removeprefix(prefix) for queue in live_queues(workers) if queue.startswith(prefix))


def tags_of(beat: Heartbeat) -> frozenset[str]:
    """Hardware tags of one process: those it names and those of the queues it takes."""
    return frozenset(beat.tags) | {queue.partition(".")[2] for queue in beat.queues}


def eval_tag(workers: Sequence[Offering], wanted: str) -> str:
    """The run's own tag where an eval worker has it, else `cpu`, else any live one of servers; the wanted one when there is none.

    Evaluation jobs need no hardware of their own: their leaves go to the inference workers.
    """
    tags = [tag for tag in live_tags(workers, Kind.EVAL) if tag != BROWSER]  # tabs play some matches only
    return next((tag for tag in (wanted, "cpu", *tags) if tag in tags), wanted)


def is_full(workers: Sequence[Offering], jobs: Iterable[JobView], queue: str) -> bool:
    """True when every slot of the queue's workers holds a job, be it of another queue that the same workers take.

    Jobs of another queue count as far as they exceed the slots that only that queue has.
    """
    leased = Counter(view.job.queue for view in jobs if view.state is JobState.LEASED)
    shared = {other for beat in workers if queue in beat.queues for other in beat.queues} - {queue}
    elsewhere = {other: sum(beat.slots for beat in workers if other in beat.queues and queue not in beat.queues) for other in shared}
    held = leased[queue] + sum(max(0, leased[other] - elsewhere[other]) for other in shared)
    return held >= slots_of(workers, queue)


def note_full(before: Mapping[str, int], workers: Sequence[Offering], jobs: Sequence[JobView], now_ms: int) -> dict[str, int]:
    """When each live queue was last seen full; now for a queue not seen before."""
    return {queue: now_ms if queue not in before or is_full(workers, jobs, queue) else before[queue] for queue in live_queues(workers)}


def note_sent(before: Mapping[Sent, int], jobs: Iterable[JobView], now_ms: int) -> dict[Sent, int]:
    """When the message of each job was first seen to be sent."""
    return {sent: before.get(sent, now_ms) for view in jobs if view.published_ms and (sent := (view.job.job_id, view.attempt))}


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
