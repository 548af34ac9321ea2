"""What a worker's main process and its pool children tell each other through shared memory: stop, who holds which job, how fast.

The children are forked, so anonymous shared pages made before the fork are seen by all. Nothing here can block or break: the
main process keeps beating while a child computes, and a child learns of a stop without a signal of its own.
What is read may be torn between two writes: figures are only ever shown, and a claim is acted upon once it was read twice.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from azq import phases
from azq.metrics import QUANTILES

_STOP = struct.Struct("<Q")
_PHASES = tuple(prefix + name for prefix in (phases.WALL, phases.CPU) for name in phases.SELFPLAY)
_RATES = (
    "games_per_s",
    "plies_per_s",
    "simulations_per_s",
    "evaluations_per_s",
    "exact_simulations_per_s",
    "cache_lookups_per_s",
    "cache_hits_per_s",
    "merged_leaves_per_s",
    "mean_batch",
    "latency_ms",
    "resent",
)
_SLOT = struct.Struct(f"<d?{len(_RATES)}dQ64s3d{len(_PHASES)}d")
_CLAIM = struct.Struct("<dQQ96s")
_CLAIM_AT = -(-_SLOT.size // 8) * 8  # behind the figures
_STRIDE = _CLAIM_AT + -(-_CLAIM.size // 8) * 8
FRESH_S = 10.0


@dataclass(frozen=True, slots=True)
class Figures:
    """A child's figures; rates are per second, `busy` says that it holds a job."""

    busy: bool = False
    games_per_s: float = 0.0
    plies_per_s: float = 0.0
    simulations_per_s: float = 0.0
    evaluations_per_s: float = 0.0
    mean_batch: float = 0.0
    latency_ms: float = 0.0
    resent: float = 0.0
    weight_version: int = 0
    run: str = ""
    latency_quantiles_ms: tuple[float, ...] = (0.0, 0.0, 0.0)  # at metrics.QUANTILES
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds per second, names as in heartbeats
    exact_simulations_per_s: float = 0.0
    cache_lookups_per_s: float = 0.0
    cache_hits_per_s: float = 0.0
    merged_leaves_per_s: float = 0.0


class Claim(NamedTuple):
    """A job that a child holds; "" where it waits for one."""

    pid: int
    job_id: str
    attempt: int


class Board:
    """A stop flag and, per pool child, a slot with its figures and the job it holds."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._memory = mmap.mmap(-1, _STRIDE * (slots + 1))

    def stop(self) -> None:
        """Tells every child to give its work back."""
        _STOP.pack_into(self._memory, 0, 1)

    def stopping(self) -> bool:
        """Whether the worker is stopping."""
        return bool(_STOP.unpack_from(self._memory, 0)[0])

    def write(self, slot: int, figures: Figures) -> None:
        """A child's figures as of now; more children than slots share the last one."""
        values = [getattr(figures, name) for name in _RATES]
        name = figures.run.encode()[:64]
        spent = (figures.phases.get(phase, 0.0) for phase in _PHASES)
        rest = (figures.weight_version, name, *figures.latency_quantiles_ms, *spent)
        _SLOT.pack_into(self._memory, self._place(slot), time.monotonic(), figures.busy, *values, *rest)

    def read(self) -> list[Figures]:
        """Figures of the children that wrote lately."""
        now = time.monotonic()
        found = []
        for slot in range(self._slots):
            written_s, busy, *rest = _SLOT.unpack_from(self._memory, _STRIDE * (1 + slot))
            if written_s and now - written_s < FRESH_S:
                rates = dict(zip(_RATES, rest, strict=False))
                version, name, *more = rest[len(_RATES) :]
                run, quantiles = name.rstrip(b"\0").decode(errors="replace"), tuple(more[: len(QUANTILES)])
                spent = {phase: share for phase, share in zip(_PHASES, more[len(QUANTILES) :], strict=True) if share}
                found.append(Figures(busy, weight_version=version, run=run, latency_quantiles_ms=quantiles, phases=spent, **rates))
        return found

    def busy(self) -> bool:
        """Whether some child holds a job."""
        return any(figures.busy for figures in self.read())

    def claim(self, slot: int, claim: Claim) -> None:
        """What a child does; said again, it is a sign of life."""
        pid, job_id, attempt = claim
        _CLAIM.pack_into(self._memory, self._place(slot) + _CLAIM_AT, time.monotonic(), pid, attempt, job_id.encode())

    def claims(self) -> dict[int, tuple[Claim, float]]:
        """What each child does, and when it last said so (monotonic clock), by slot."""
        found = {}
        for slot in range(self._slots):
            said_s, pid, attempt, job_id = _CLAIM.unpack_from(self._memory, self._place(slot) + _CLAIM_AT)
            if pid:
                found[slot] = Claim(pid, job_id.rstrip(b"\0").decode(errors="replace"), attempt), said_s
        return found

    def _place(self, slot: int) -> int:
        return _STRIDE * (1 + min(slot, self._slots - 1))
