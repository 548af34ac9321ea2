"""The live workers of one run as operators read them, and what they do together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from azq import metrics
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
class FleetRates:
    """What a set of workers does together."""

    games_per_s: float
    simulations_per_s: float
    evaluations_per_s: float
    mean_batch: float
    network_busy: float


@dataclass(frozen=True, slots=True)
class Workforce:
    """Everything that a run's status says of its workers."""

    beats: tuple[Heartbeat, ...]
    workers: tuple[WorkerStatus, ...]
    encoded: msgspec.Raw  # the workers as JSON
    rates: FleetRates
    lag: Callable[[str, int], float]  # of their weights behind a version of a run, see `lag_of`


def team_of(beats: Sequence[Heartbeat], status: Callable[[Heartbeat], WorkerStatus]) -> Workforce:
    """These workers; `status` tells how each is read."""
    listed = tuple(map(status, beats))
    return Workforce(tuple(beats), listed, msgspec.Raw(msgspec.json.encode(listed)), fleet_rates(beats), lag_of(beats))


def joined(shared: Workforce, own: Sequence[Heartbeat], status: Callable[[Heartbeat], WorkerStatus]) -> Workforce:
    """The workers of every run, and those of one: hundreds of runs may share a thousand workers, and most have but a learner of their own.

    A learner plays and evaluates nothing, so the sums of the shared ones stand.
    """
    more, beats = tuple(map(status, own)), (*shared.beats, *own)
    players = [beat for beat in own if beat.role != "learner"]
    rates, lag = (fleet_rates(beats), lag_of(beats)) if players else (shared.rates, shared.lag)
    return Workforce(beats, (*shared.workers, *more), _one_list(shared.encoded, msgspec.json.encode(more)), rates, lag)


def _one_list(first: msgspec.Raw, second: bytes) -> msgspec.Raw:
    """Two JSON lists as one."""
    parts = [part for part in (bytes(first)[1:-1], second[1:-1]) if part]
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def worker_status(beat: Heartbeat, now_ms: int) -> WorkerStatus:
    """A heartbeat as operators read it."""
    same = {name: getattr(beat, name) for name in _TAKEN_OVER}
    return WorkerStatus(**same, age_s=max(0, now_ms - beat.sent_ms) / 1000, up_s=max(0, beat.sent_ms - beat.started_ms) / 1000)


def fleet_rates(workers: Sequence[Heartbeat]) -> FleetRates:
    """The rates of all these workers, summed or averaged as each asks for."""
    busy = [beat.rates[metrics.NETWORK_BUSY] for beat in workers if beat.role == "inference" and metrics.NETWORK_BUSY in beat.rates]
    return FleetRates(
        games_per_s=_total(workers, metrics.GAMES_PER_S, (Kind.SELFPLAY, GATEWAY)),
        simulations_per_s=_total(workers, metrics.SIMULATIONS_PER_S, (*Kind, GATEWAY)),
        evaluations_per_s=_evaluations_per_s(workers),
        mean_batch=_mean_batch(workers),
        network_busy=sum(busy) / len(busy) if busy else 0.0,
    )


def lag_of(workers: Iterable[Heartbeat]) -> Callable[[str, int], float]:
    """How many versions self-play searches behind the weights that serve, mean over its workers: by run and that version.

    What workers say themselves goes before what their versions tell; one that waits for its first evaluation (version 0) has none.
    """
    said: list[float] = []
    held: dict[str, list[int]] = {}
    for beat in workers:
        if beat.role == Kind.SELFPLAY:
            said += [beat.rates[metrics.POLICY_LAG]] if metrics.POLICY_LAG in beat.rates else []
            for run, version in beat.weight_versions.items():
                held.setdefault(run, []).extend([version] if version else ())
    mean_said = sum(said) / len(said) if said else 0.0

    def lag(run: str, version: int) -> float:
        known = held.get(run)
        if said or not known:
            return mean_said
        return sum(max(0, version - other) for other in known) / len(known)

    return lag


def by_saying(prefix: str, said: Mapping[str, str]) -> list[str]:
    """What hosts or workers say, a line for each saying that names those who say it."""
    names: dict[str, list[str]] = {}
    for name, saying in sorted(said.items()):
        names.setdefault(saying, []).append(name)
    return [f"{prefix}{', '.join(named)}: {saying}" for saying, named in names.items()]


def _total(workers: Iterable[Heartbeat], rate: str, roles: tuple[str, ...]) -> float:
    return sum(beat.rates.get(rate, 0.0) for beat in workers if beat.role in roles)


def _evaluations_per_s(workers: Sequence[Heartbeat]) -> float:
    """What inference workers do; where there is none (a local evaluator), what the searching workers do."""
    return _total(workers, metrics.EVALUATIONS_PER_S, ("inference",)) or _total(workers, metrics.EVALUATIONS_PER_S, tuple(Kind))


def _mean_batch(workers: Sequence[Heartbeat]) -> float:
    """Mean over the inference workers, each weighted by its batches per second."""
    busy = [(beat.rates.get(metrics.EVALUATIONS_PER_S, 0.0), batch) for beat in workers if (batch := beat.rates.get(metrics.MEAN_BATCH))]
    batches_per_s = sum(rate / batch for rate, batch in busy)
    return sum(rate for rate, _ in busy) / batches_per_s if batches_per_s else 0.0
