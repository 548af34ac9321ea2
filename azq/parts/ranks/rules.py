"""Membership of an epoch and each rank's rows of a step: pure rules over the ranks' heartbeats.

Rank 0 is the learner: it alone writes the membership table, so there is no vote. The others register as free, find their name in a newer
table, and rendezvous where it says. A lost member ends the epoch; the next one has the ranks that registered since then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from azq.errors import ConfigError
from azq.wire.messages import RankBeat, RankTable

LOOPBACK = "127.0.0.1"
FORGIVEN_AFTER_S = 600.0  # without another error
MOST_ERRORS = 5
MOST_RATIO = 2.0  # between the shares of a batch that the fastest and the slowest rank get


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one process stands among the ranks of a run."""

    rank: int = 0
    ranks: int = 1
    local: int = 0  # among those of its host: which GPU it takes
    host: str = LOOPBACK  # rank 0's, as the others know it
    launched: bool = False  # something else, such as torchrun, starts the other ranks


@dataclass(frozen=True, slots=True)
class RankHealth:
    """Rank 0's record of another rank's errors."""

    name: str = ""  # of the process last heard of; empty: none, or it is gone
    reported: int = 0  # errors of this process, by its own count
    errors: int = 0
    reason: str = ""  # of the last one
    failed_s: float = 0.0  # when that was

    def after(self, beat: RankBeat | None, now_s: float) -> RankHealth:
        """The health after a poll: a lost or replaced process counts as an error; `FORGIVEN_AFTER_S` after the last all are forgiven."""
        if self.errors and now_s - self.failed_s > FORGIVEN_AFTER_S:
            return replaced(self, errors=0).after(beat, now_s)
        if beat is None:
            return self._failed(1, "it gives no sign of life", now_s, name="", reported=0) if self.name else self
        health, status = self, beat.status
        if beat.name != self.name:
            health = replaced(self, name=beat.name, reported=0)
            if self.name:
                health = health._failed(1, "its process ended", now_s)
        more = status.errors - health.reported
        return health._failed(more, status.reason, now_s, reported=status.errors) if more > 0 else health

    @property
    def left_out(self) -> bool:
        """True with more than `MOST_ERRORS`, each within ten minutes of the one before."""
        return self.errors > MOST_ERRORS

    def _failed(self, errors: int, reason: str, now_s: float, **changes: Any) -> RankHealth:
        return replaced(self, errors=self.errors + errors, reason=reason, failed_s=now_s, **changes)


def place_of(environ: Mapping[str, str], ranks: int) -> RankPlace:
    """The place that RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR tell, as torchrun sets them; rank 0 of `ranks` without them.

    MASTER_PORT is not used: ranks meet in the control plane. Raises `ConfigError` for what is no place.
    """
    if "RANK" not in environ:
        return RankPlace(ranks=ranks)
    try:
        rank, world = int(environ["RANK"]), int(environ.get("WORLD_SIZE", str(ranks)))
        local = int(environ.get("LOCAL_RANK", str(rank)))
    except ValueError:
        raise ConfigError("RANK, WORLD_SIZE and LOCAL_RANK are to be numbers; unset them or let torchrun set them") from None
    if not 0 <= rank < world:
        raise ConfigError(f"RANK={rank} is not below WORLD_SIZE={world}; count ranks from 0")
    return RankPlace(rank, world, local, environ.get("MASTER_ADDR", LOOPBACK), launched=True)


def next_table(table: RankTable, beats: Sequence[RankBeat], *, broken: bool) -> RankTable:
    """The membership table after a poll; unchanged while no rank came and the epoch lasts.

    `broken`: a member was lost, so that the others have to register as free again.
    """
    staying = () if broken else table.members
    came = tuple((beat.rank, beat.name) for beat in beats if beat.free and (beat.rank, beat.name) not in staying)
    if not came and not broken:
        return table
    numbers = {rank for rank, _ in came}
    members = sorted([member for member in staying if member[0] not in numbers] + list(dict(came).items()))
    return replace(table, epoch=table.epoch + 1, members=tuple(members), meeting="")


def invited(table: RankTable, name: str, last_meeting: str) -> bool:
    """True when a table names this process, and another meeting than the one that it was in last.

    Not by the number of the epoch: that starts over where rank 0 was away for longer than its table lives.
    """
    return table.meeting not in ("", last_meeting) and any(member == name for _, member in table.members)


def shares(speeds: Sequence[float], rows: int, most_ratio: float = MOST_RATIO) -> tuple[int, ...]:
    """Rows of a step for each rank, in proportion to its samples a second; equal where a speed is not known yet (0).

    They sum to `rows`, each is at least 1, and before rounding the largest is at most `most_ratio` times the smallest.
    """
    if not all(speed > 0 for speed in speeds):
        speeds = [1.0] * len(speeds)
    least = max(speeds) / most_ratio
    weights = [max(speed, least) for speed in speeds]
    exact = [rows * weight / sum(weights) for weight in weights]
    given = [max(1, int(part)) for part in exact]
    by_need = sorted(range(len(exact)), key=lambda rank: given[rank] - exact[rank])
    for rank in by_need[: max(0, rows - sum(given))]:
        given[rank] += 1
    while sum(given) > rows:
        given[given.index(max(given))] -= 1
    return tuple(given)


def smoothed(before: Sequence[float], now: Sequence[float]) -> tuple[float, ...]:
    """Speeds as an average that mostly keeps what it was, so that one slow round moves few rows; `now` where the ranks are others."""
    if len(before) != len(now):
        return tuple(now)
    return tuple(0.8 * old + 0.2 * new for old, new in zip(before, now, strict=True))


def is_mine(uid: int, rank: int, ranks: int) -> bool:
    """True for the games that a rank draws from: all of them for rank 0, which takes them in, an equal part of them for each other one.

    With equal rows, every sample of the window is then drawn equally often.
    """
    return rank == 0 or uid % (ranks - 1) == rank - 1
