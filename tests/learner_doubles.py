"""Doubles around a learner: a ledger of one run, a store in memory, a tracker that remembers."""

from __future__ import annotations

import hashlib

from azq.bus.base import Bus
from azq.errors import StoreError
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.wire import keys
from azq.wire.messages import RunRecord


class OneRunLedger:
    """Knows one run; keeps what the learner reported."""

    def __init__(self, run: str, bus: Bus) -> None:
        self._bus = bus
        self.record = RunRecord(run, b"{}", {}, "", 0)
        self.state = RunState.RUNNING
        self.active_ms = 0
        self.inserted = 0
        self.duplicates_dropped = 0
        self.refused: dict[int, str] = {}

    def run(self, name: str) -> RunView:
        return RunView(self.record, self.state, "", self.active_ms, 0)

    def counts(self, run: str) -> LedgerCounts:
        return LedgerCounts(self.inserted, self.inserted, 0, 0, self.inserted, 0, self.duplicates_dropped)

    def record_inserted(self, run: str, inserted: int, duplicates_dropped: int, *, ack=(), refused=None) -> None:
        if ack:
            self._bus.ack(keys.samples(run), keys.LEARNER_GROUP, list(ack))
        self.inserted, self.duplicates_dropped = inserted, duplicates_dropped
        self.refused.update(refused or {})


class DictStore:
    """Blobs in a dictionary."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> tuple[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest, f"memory://{digest}"

    def get(self, uri: str, sha256: str) -> bytes:
        if sha256 not in self.blobs:
            raise StoreError(f"no blob {uri}")
        return self.blobs[sha256]


class ListTracker:
    """Remembers all figures."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def scalars(self, values, step: int) -> None:
        self.seen.append((step, dict(values)))

    def text(self, tag: str, text: str, step: int) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...
