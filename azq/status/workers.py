"""Live workers and the queues that they take, as operators and the daemon see them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from azq.ledger.types import JobState, JobView
from azq.status.state import Offer, Offering, Sent
from azq.wire.kinds import BROWSER, Kind
from azq.wire.messages import Heartbeat

GATEWAY = "gateway"  # role of who has games made by browsers' tabs


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One live process."""

    worker: str
    role: str
    host: str
    pid: int
    version: str
    run: str
    queues: tuple[str, ...]
    tags: tuple[str, ...]
    slots: int
    age_s: float  # since its last heartbeat
    up_s: float
    rates: dict[str, float]
    weight_versions: dict[str, int]
    note: str = ""  # what an operator should know of it


_TAKEN_OVER = tuple(field.name for field in fields(WorkerStatus) if field.name in Heartbeat.__struct_fields__)


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """What inference workers do for one run."""

    mean_batch: float  # each worker weighted by its passes a second
    network_busy: float  # mean over those that serve it


@dataclass(frozen=True, slots=True)
class Workforce:
    """Everything that a run's status says of its workers."""

    beats: tuple[Heartbeat, ...]
    workers: tuple[WorkerStatus, ...]
    encoded: msgspec.Raw  # the workers as JSON
    networks: dict[str, NetworkUse]  # by run
    lag: Callable[[str, int], float]  # of their weights behind a version of a run, see `lag_of`


def team_of(beats: Sequence[Heartbeat], status: Callable[[Heartbeat], WorkerStatus]) -> Workforce:
    """These workers; `status` tells how each is read."""
    listed = tuple(map(status, beats))
    return Workforce(tuple(beats), listed, msgspec.Raw(msgspec.json.encode(listed)), network_uses(beats), lag_of(beats))


def joined(shared: Workforce, own: Sequence[Heartbeat], status: Callable[[Heartbeat], WorkerStatus]) -> Workforce:
    """The workers of every run, and those of one: hundreds of runs may share a thousand workers, and most have only their learner besides.

    A learner plays and evaluates nothing, so what is known of the shared ones stands.
    """
    more, beats = tuple(map(status, own)), (*shared.beats, *own)
    players = [beat for beat in own if beat.role != "learner"]
    networks, lag = (network_uses(beats), lag_of(beats)) if players else (shared.networks, shared.lag)
    return Workforce(beats, (*shared.workers, *more), _one_list(shared.encoded, msgspec.json.encode(more)), networks, lag)


def _one_list(first: msgspec.Raw, second: bytes) -> msgspec.Raw:
    """Two JSON lists as one."""
    parts = [part for part in (bytes(first)[1:-1], second[1:-1]) if part]
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def worker_status(beat: Heartbeat, now_ms: int) -> WorkerStatus:
    """A heartbeat as operators read it."""
    same = {name: getattr(beat, name) for name in _TAKEN_OVER}
    return WorkerStatus(**same, age_s=max(0, now_ms - beat.sent_ms) / 1000, up_s=max(0, beat.sent_ms - beat.started_ms) / 1000)


def network_uses(workers: Iterable[Heartbeat]) -> dict[str, NetworkUse]:
    """What inference workers do for each run that they had batches of, or serve; one that none serves is left out."""
    values: dict[str, list[tuple[float, float, float]]] = {}
    for beat in workers:
        if beat.role == "inference":
            for run in {*beat.weight_versions, *beat.by_run}:
                values.setdefault(run, []).append(beat.by_run.get(run, (0.0, 0.0, 0.0)))
    return {run: _network_use(uses) for run, uses in values.items() if any(batch for _, batch, _ in uses)}


def _network_use(uses: Sequence[tuple[float, float, float]]) -> NetworkUse:
    passes_per_s = sum(rate / batch for rate, batch, _ in uses if batch)
    return NetworkUse(sum(rate for rate, _, _ in uses) / passes_per_s, sum(busy for *_, busy in uses) / len(uses))


def lag_of(workers: Iterable[Heartbeat]) -> Callable[[str, int], float]:
    """How many versions self-play searches behind the weights that serve, mean over its workers: by run and that version.

    One that waits for its first evaluation (version 0) tells none.
    """
    held: dict[str, list[int]] = {}
    for beat in workers:
        if beat.role == Kind.SELFPLAY:
            for run, version in beat.weight_versions.items():
                held.setdefault(run, []).extend([version] if version else ())

    def lag(run: str, version: int) -> float:
        versions = held.get(run)
        return sum(max(0, version - other) for other in versions) / len(versions) if versions else 0.0

    return lag


def by_reason(prefix: str, reasons: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the hosts or workers that gave it."""
    names: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        names.setdefault(reason, []).append(name)
    return [f"{prefix}{', '.join(named)}: {reason}" for reason, named in names.items()]


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

    Evaluation jobs need no special hardware: their leaves go to the inference workers.
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
    offers = condense(workers)
    return {queue: now_ms if queue not in before or is_full(offers, jobs, queue) else before[queue] for queue in live_queues(offers)}


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
    return [_queue_status(queue, workers, views, now_ms) for queue, views in sorted(by_queue.items())]


def _queue_status(queue: str, workers: Sequence[Heartbeat], views: Sequence[JobView], now_ms: int) -> QueueStatus:
    waiting = [view.created_ms for view in views if view.state is JobState.QUEUED]
    return QueueStatus(
        queue=queue,
        queued=len(waiting),
        leased=sum(view.state is JobState.LEASED for view in views),
        slots=slots_of(workers, queue),
        workers=sum(queue in beat.queues for beat in workers),
        oldest_queued_s=max(0, now_ms - min(waiting)) / 1000 if waiting else None,
    )
