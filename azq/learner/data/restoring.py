"""A run's folder is enough to go on from: what its segment log knows, and the ledger does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from azq import logs
from azq.bus.base import Bus
from azq.config import RunSections
from azq.ledger.types import LearnerLease, LedgerCounts
from azq.replay.segments import SegmentLog
from azq.wire import keys
from azq.wire.codec import uid_of

_READ = 1000  # entries of the sample stream at once

log = logs.get(__name__)


class RestoringLedger(Protocol):
    """What restoring asks of the ledger."""

    def counts(self, run: str) -> LedgerCounts: ...
    def open_uids(self, run: str) -> set[int]: ...
    def restore(
        self, run: str, stored: int, highest: int, missing: Sequence[tuple[int, int]], lease: LearnerLease | None = None
    ) -> int: ...


def game_key(sections: RunSections) -> str:
    """The game with its parameters, as stamped on segments and checkpoints."""
    params = json.dumps(sections.run.params, sort_keys=True) if sections.run.params else ""
    return sections.run.game + params


def restore(run: str, ledger: RestoringLedger, bus: Bus, segments: SegmentLog, lease: LearnerLease | None) -> int:
    """Makes the ledger agree with the log, whatever it forgot; returns how many games were written off.

    Open games are read before those on their way, so that one which ends meanwhile is seen in one of both. Raises `StateConflict`.
    """
    last = max(ledger.counts(run).opened, segments.uids.highest)
    kept = ledger.open_uids(run) | _on_their_way(run, bus)
    missing = [span for gap in segments.uids.gaps(last) for span in _without(gap, kept)]
    gone = ledger.restore(run, segments.games, segments.uids.highest, missing, lease)
    log.warning("run_restored", run=run, games=segments.games, written_off=gone, lost="open games, arena results and history of before")
    return gone


def _on_their_way(run: str, bus: Bus) -> set[int]:
    uids: set[int] = set()
    last_id = "0"
    while entries := bus.after(keys.samples(run), last_id, count=_READ):
        last_id = entries[-1].id
        uids |= {uid for entry in entries if (uid := uid_of(entry.frame))}
    return uids


def _without(span: tuple[int, int], kept: set[int]) -> list[tuple[int, int]]:
    first, last = span
    cuts = sorted(uid for uid in kept if first <= uid <= last)
    edges = zip([first, *(cut + 1 for cut in cuts)], [*(cut - 1 for cut in cuts), last], strict=True)
    return [(low, high) for low, high in edges if low <= high]
