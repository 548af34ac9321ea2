"""A ledger with its bus and a clock that a test sets."""

from __future__ import annotations

from memory_broker import MemoryBus, MemoryLedger

from azq.ledger.types import Lease
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunEvent, RunRecord, SampleEvent


class World:
    """A ledger, its bus and its clock."""

    def __init__(self, bus: MemoryBus | None = None) -> None:
        self.now = 1_000_000
        self.bus = bus or MemoryBus()
        self.ledger = MemoryLedger(self.bus, clock_ms=lambda: self.now)
        self.ledger.create_run(record("r"))

    def lease(self, kind: Kind = Kind.SELFPLAY, *, owner: str = "w1", lease_s: float = 10.0) -> Lease:
        view = self.ledger.enqueue(Job("", "r", kind, "cpu", games=3))
        lease: Lease | None = self.ledger.claim(view.job.job_id, 1, owner, lease_s)
        assert lease is not None
        return lease

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    def samples(self) -> list[int]:
        return [decode(entry.frame, SampleEvent).record.uid for entry in self.bus.after(keys.samples("r"), "0")]

    def heard(self) -> list[tuple[str, dict[str, str]]]:
        """What became of the run and its jobs, as those who watch are told."""
        events = [decode(entry.frame, RunEvent) for entry in self.bus.after(keys.events("r"), "0", count=10_000)]
        return [(event.kind, dict(event.about)) for event in events]


def record(run: str) -> RunRecord:
    return RunRecord(run, b"{}", {"games": 10}, "folder", 1)


def event(uid: int) -> SampleEvent:
    return SampleEvent(GameRecord(uid, b"\1\0"), (1.0, -1.0), "w1", 1)
