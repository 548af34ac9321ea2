"""A self-play slice: what is to be played, and what it decides, as pure functions of numbers: whose turn, when to journal, when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from azq import _core
from azq.config import RunSections
from azq.errors import ConfigError
from azq.ledger.types import Directive, Lease

PATIENCE_S = 60.0  # without any evaluation for so long, the games are better off elsewhere


class Stop(StrEnum):
    """Why a slice ended. After the first six its games went back to the pool; after the last two the lease takes care of them."""

    SLICE_OVER = "slice_over"
    ASKED = "asked"  # the worker is stopping
    RELEASED = "released"  # the run is paused or finished, or the job was cancelled
    STALLED = "stalled"  # the limiter said for long that self-play is ahead
    STARVED = "starved"  # no evaluation came for too long
    NO_GAMES = "no_games"  # the ledger had none to give
    LEASE_LOST = "lease_lost"
    BROKER_LOST = "broker_lost"


@dataclass(frozen=True, slots=True)
class Moment:
    """A slice as it stands; times in seconds of one monotonic clock."""

    now_s: float
    started_s: float
    evaluated_s: float  # the last evaluation came, or the wait for one began
    stopping: bool
    directive: Directive
    open_games: int
    stalled_s: float = 0.0  # that the slice has waited for the limiter so far


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """How long a slice may take (`slice_s`), may wait for an evaluation (`patience_s`), and how often it journals."""

    slice_s: float
    patience_s: float
    journal_s: float
    waits: bool = False  # for games, where there are none: in lockstep the next weights bring some
    stall_s: float = 0.0  # in all, for the limiter


@dataclass(frozen=True, slots=True)
class Slice:
    """Games of a run to be played under one lease. `made_ms` is when the run was created: an earlier one may have borne its name."""

    lease: Lease
    sections: RunSections
    game: _core.Game
    made_ms: int = 0
    patience_s: float = PATIENCE_S

    @property
    def games(self) -> int:
        return self.lease.job.games or self.sections.selfplay.games_in_flight

    @property
    def limits(self) -> SliceLimits:
        """The job's length goes before the run's; no journal write is so late that the lease gets thin."""
        settings = self.sections.selfplay
        journal_s = journal_interval_s(settings.journal_s, self.lease.lease_s)
        waits = self.sections.learner.lockstep_games > 0
        job = self.lease.job
        return SliceLimits(job.slice_s or settings.slice_s, self.patience_s, journal_s, waits, job.stall_s)


def why_stop(moment: Moment, limits: SliceLimits) -> Stop | None:
    """The reason to end the slice now, or None; an order comes before the clock."""
    if moment.stopping:
        return Stop.ASKED
    if moment.directive is Directive.RELEASE:
        return Stop.RELEASED
    if moment.directive is Directive.STALL and moment.stalled_s >= limits.stall_s:
        return Stop.STALLED
    if moment.open_games == 0 and not limits.waits:
        return Stop.NO_GAMES
    if moment.now_s - moment.started_s >= limits.slice_s:
        return Stop.SLICE_OVER
    if moment.now_s - moment.evaluated_s > limits.patience_s:
        return Stop.STARVED
    return None


def journal_interval_s(journal_s: float, lease_s: float) -> float:
    """Seconds between journal writes: as configured, yet never so long that the lease gets thin, for each write renews it."""
    return min(journal_s, lease_s / 3)


def group_sizes(games: int, groups: int) -> tuple[int, ...]:
    """Slots of each group; they differ by at most one and no group is empty. Raises ValueError without games."""
    if games < 1 or groups < 1:
        raise ValueError(f"{games} games in {groups} groups")
    count = min(games, groups)
    return tuple(games // count + (index < games % count) for index in range(count))


def groups_that_fit(games: int, groups: int, leaves_per_step: int, most_leaves: int) -> int:
    """So many groups, or as many more as it takes that no group's request holds over `most_leaves`; `ConfigError` where one game's does."""
    slots = most_leaves // leaves_per_step
    if slots < 1:
        reason = f"search.leaves_per_step = {leaves_per_step} leaves of one game do not fit a message, {most_leaves} do"
        raise ConfigError(f"{reason}; lower search.leaves_per_step, or set search.batch_root to false")
    return max(groups, -(-games // slots))


def next_group(group: int, groups: int) -> int:
    """Whose turn follows: strictly round, so that each group is evaluated while all others are searched."""
    return (group + 1) % groups
