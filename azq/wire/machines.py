"""What the control plane keeps of machines, who was let in, what they cost and which processes died on them; of studies and of purges."""

from __future__ import annotations

import msgspec

from azq.wire.messages import Message


class AdmittedMachine(Message, frozen=True):
    """A machine that was let in, without its secret."""

    roles: tuple[str, ...]  # as `azq join --roles` has them
    created_ms: int
    expires_ms: int


class MachineTime(Message, frozen=True):
    """What one host was there for, and what that cost."""

    kind: str = ""
    per_hour: float | None = None  # as it said last
    roles: tuple[str, ...] = ()  # of its processes
    ms: float = 0.0  # of its time; of a run: the run's share
    unpriced_ms: float = 0.0  # of these, without a known price
    money: float = 0.0
    seen_ms: int = 0  # when it was there last


class Spending(Message, frozen=True):
    """What machines cost so far, of the fleet or of one run."""

    at_ms: int = 0  # until when it is known; of a run, by the time that it has been running
    ms: float = 0.0  # of time in which some machine was there
    per_hour: float = 0.0  # at that moment
    currency: str = ""
    machines: dict[str, MachineTime] = msgspec.field(default_factory=dict)  # by host


class ProcessDeath(Message, frozen=True):
    """A process ended otherwise than well."""

    name: str  # among those of its host: what its supervisor calls it, else by its first heartbeat
    host: str
    pid: int
    run: str  # that it worked for alone; empty: for all
    cause: str  # empty: not observed
    log: str  # file on its host; empty: its manager has it


class StudyRecord(Message, frozen=True):
    """What a sweep reported of its study."""

    study: str
    report: bytes  # JSON of azq.status.results.StudyReport
    sent_ms: int


class PurgeOrders(Message, frozen=True):
    """Whose games leave a run's window: those that a worker had finished until a moment."""

    until_ms: dict[str, int]  # by worker, as `browser:<contributor>`


class PurgedGames(Message, frozen=True):
    """What became of a purge order in the learner's window."""

    until_ms: int  # of the order
    games: int
    samples: int
    window: int  # samples in it before
