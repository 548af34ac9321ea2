"""What operators want and what is there, as one look finds them. Frozen values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from azq.config import RunSections
from azq.ledger.types import JobView, LedgerCounts, RunState
from azq.ratings.matches import WholeMatch
from azq.wire.machines import Spending
from azq.wire.messages import EvalRound, Heartbeat, LearnerStatus, PromotionEvent

# What stands for a learner that says nothing: it has done nothing and asks for nothing.
SILENT = LearnerStatus(0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, False, False, 0.0, 0)

NO_ROUND = EvalRound(0, 0)  # none was asked for yet
NOTHING_SPENT = Spending()


def stalled(learner: LearnerStatus | None, counts: LedgerCounts, max_waiting_games: int) -> str:
    """Why a run gets no new self-play jobs just now; empty where it does. The ledger tells running ones the same."""
    if (learner or SILENT).stall_selfplay:
        return "self-play is ahead of the learner (samples_per_insert)"
    return f"{counts.in_transit} finished games wait for the learner" if counts.in_transit >= max_waiting_games else ""


class Offering(Protocol):
    """Slots on some queues; a heartbeat fulfils it."""

    @property
    def queues(self) -> tuple[str, ...]: ...
    @property
    def slots(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """What all workers of the same queues offer together."""

    queues: tuple[str, ...]
    slots: int


Sent = tuple[str, int]  # a message in a queue: id of the job and attempt


@dataclass(frozen=True, slots=True)
class DesiredRun:
    """One run as its operator wants it; `sections` is None where the stored ones do not parse, `unreadable` says why."""

    name: str
    state: RunState
    sections: RunSections | None
    until: Mapping[str, float] = field(default_factory=dict)
    changed_ms: int = 0  # when the state changed last
    changed_job: int = 0  # number of the newest job then
    unreadable: str = ""
    reason: str = ""  # of its state


@dataclass(frozen=True, slots=True)
class Desired:
    """All runs of the control plane."""

    runs: tuple[DesiredRun, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """One run as it stands."""

    counts: LedgerCounts
    active_ms: int = 0
    jobs: tuple[JobView, ...] = ()  # queued and leased
    ended: tuple[JobView, ...] = ()  # newest first: self-play jobs back to the last one that did not fail, some at most
    learner: LearnerStatus | None = None  # None: no live learner
    learned: LearnerStatus | None = None  # what a learner said last, alive or not; None: none ever reported
    weight_version: int = 0  # 0: none published yet
    weight_step: int = 0  # of training, of the newest weights
    round: EvalRound = NO_ROUND  # the newest evaluation round that was asked for
    promotions: tuple[PromotionEvent, ...] = ()  # oldest first
    promotions_id: str = "0"  # of the newest; "0" where there is none
    first_version: int = 0  # where versions are promoted and none was yet
    matches: tuple[WholeMatch, ...] = ()  # the newest, where they may promote a version or end a match whose parts are queued
    money: float = 0.0  # that its machines cost so far


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the daemon looks at in one tick."""

    workers: tuple[Heartbeat, ...] = ()
    runs: Mapping[str, ObservedRun] = field(default_factory=dict)
    full_ms: Mapping[str, int] = field(default_factory=dict)  # queue -> when its workers were last all busy (or first seen), by `clock_ms`
    sent_ms: Mapping[Sent, int] = field(default_factory=dict)  # message of a job -> when it was first seen to be sent, by `clock_ms`
    clock_ms: int = 0  # time that the observer has looked on; no host's clock
    spent: Spending = NOTHING_SPENT  # by the whole fleet
