"""What a worker's main process and its pool children tell each other through shared memory: stop, who holds which job, how fast.

The children are forked, so anonymous shared pages made before the fork are seen by all. Nothing here can block or break: the
main process keeps beating while a child computes, and a child learns of a stop without a signal of its own.
What is read may be torn between two writes: figures are only ever shown, and a claim is acted upon once it was read twice.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from azq import metrics, phases

_STOP = struct.Struct("<Q")
_RATES = (*metrics.OF_CHILDREN, *(prefix + name for prefix in (phases.WALL, phases.CPU) for name in phases.SELFPLAY))
_SLOT = struct.Struct(f"<d?Q64s{len(_RATES)}d")
_CLAIM = struct.Struct("<dQQ96s")
_CLAIM_AT = -(-_SLOT.size // 8) * 8  # behind the figures
_LEFT_AT = _CLAIM_AT + -(-_CLAIM.size // 8) * 8  # the last one that another child wrote over
_STRIDE = _LEFT_AT + -(-_CLAIM.size // 8) * 8
FRESH_S = 10.0


@dataclass(frozen=True, slots=True)
class ChildFigures:
    """What a child does: `busy` says that it holds a job, `rates` are figures and phases by their names in heartbeats, zeros left out."""

    busy: bool = False
    run: str = ""
    weight_version: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)


class Claim(NamedTuple):
    """A job that a child holds; "" where it waits for one."""

    pid: int
    job_id: str
    attempt: int


class Board:
    """A stop flag and, per pool child, a slot with its figures and the job it holds."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._memory = mmap.mmap(-1, _STRIDE * (slots + 1))

    def stop(self) -> None:
        """Tells every child to give its work back."""
        _STOP.pack_into(self._memory, 0, 1)

    def stopping(self) -> bool:
        return bool(_STOP.unpack_from(self._memory, 0)[0])

    def write(self, slot: int, figures: ChildFigures) -> None:
        """A child's figures as of now; more children than slots share the last one."""
        facts = (figures.busy, figures.weight_version, figures.run.encode()[:64])
        rates = (figures.rates.get(name, 0.0) for name in _RATES)
        _SLOT.pack_into(self._memory, self._place(slot), time.monotonic(), *facts, *rates)

    def read(self) -> list[ChildFigures]:
        """Figures of the children that wrote lately."""
        now = time.monotonic()
        found = []
        for slot in range(self.slots):
            written_s, busy, version, run, *values = _SLOT.unpack_from(self._memory, self._place(slot))
            if written_s and now - written_s < FRESH_S:
                rates = {name: value for name, value in zip(_RATES, values, strict=True) if value}
                found.append(ChildFigures(busy, _text(run), version, rates))
        return found

    def busy(self) -> bool:
        return any(figures.busy for figures in self.read())

    def claim(self, slot: int, claim: Claim) -> None:
        """What a child does; said again, it is a sign of life.

        A job that another child held here stays in sight: that child is dead, and may have lived for less time than passes between looks.
        """
        pid, job_id, attempt = claim
        cell = self._place(slot) + _CLAIM_AT
        before = _CLAIM.unpack_from(self._memory, cell)
        if before[1] != pid and before[3].strip(b"\0"):
            _CLAIM.pack_into(self._memory, self._place(slot) + _LEFT_AT, *before)
        _CLAIM.pack_into(self._memory, cell, time.monotonic(), pid, attempt, job_id.encode())

    def claims(self) -> dict[int, tuple[Claim, float]]:
        """What each child does, and when it last said so (monotonic clock), by slot."""
        return {slot: found for slot in range(self.slots) if (found := self._claim_at(slot, _CLAIM_AT))[0].pid}

    def left(self) -> set[Claim]:
        """The job, by slot, that its last child held when another one took its place."""
        return {claim for slot in range(self.slots) if (claim := self._claim_at(slot, _LEFT_AT)[0]).pid}

    def _claim_at(self, slot: int, offset: int) -> tuple[Claim, float]:
        said_s, pid, attempt, job_id = _CLAIM.unpack_from(self._memory, self._place(slot) + offset)
        return Claim(pid, _text(job_id), attempt), said_s

    def _place(self, slot: int) -> int:
        return _STRIDE * (1 + min(slot, self.slots - 1))


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")


def merge(children: Sequence[ChildFigures]) -> dict[str, float]:
    """The children's figures as their worker's, as each asks for; {} where no child has worked lately."""
    if not children:
        return {}
    weights = [child.rates.get(metrics.EVALUATIONS_PER_S, 0.0) for child in children]
    merged = {name: combine([child.rates.get(name, 0.0) for child in children], weights) for name, combine in metrics.OF_CHILDREN.items()}
    return merged | phases.merged([spent for child in children if (spent := phases.of_heartbeat(child.rates))])


def versions(children: Sequence[ChildFigures]) -> dict[str, int]:
    """The newest weight version each run's games were searched with."""
    newest: dict[str, int] = {}
    for child in children:
        if child.run:
            newest[child.run] = max(newest.get(child.run, 0), child.weight_version)
    return newest
