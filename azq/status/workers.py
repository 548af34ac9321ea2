"""The live workers of one run as operators read them, and what they do together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from azq.wire.kinds import Kind
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


_TAKEN_OVER = tuple(each.name for each in fields(WorkerStatus) if each.name in Heartbeat.__struct_fields__)


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
    """The workers of every run, and those of one: hundreds of runs may share a thousand workers, and most have but a learner of their own.

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
    told: dict[str, list[tuple[float, float, float]]] = {}
    for beat in workers:
        if beat.role == "inference":
            for run in {*beat.weight_versions, *beat.by_run}:
                told.setdefault(run, []).append(beat.by_run.get(run, (0.0, 0.0, 0.0)))
    return {run: _network_use(said) for run, said in told.items() if any(batch for _, batch, _ in said)}


def _network_use(said: Sequence[tuple[float, float, float]]) -> NetworkUse:
    passes_per_s = sum(rate / batch for rate, batch, _ in said if batch)
    return NetworkUse(sum(rate for rate, _, _ in said) / passes_per_s, sum(busy for *_, busy in said) / len(said))


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
        known = held.get(run)
        return sum(max(0, version - other) for other in known) / len(known) if known else 0.0

    return lag


def by_saying(prefix: str, said: Mapping[str, str]) -> list[str]:
    """What hosts or workers say, a line for each saying that names those who say it."""
    names: dict[str, list[str]] = {}
    for name, saying in sorted(said.items()):
        names.setdefault(saying, []).append(name)
    return [f"{prefix}{', '.join(named)}: {saying}" for saying, named in names.items()]
