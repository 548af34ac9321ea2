"""Which games that are on disk may be acknowledged: those that the run's store has too, where it keeps games. Pure but for its lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from azq import logs
from azq.bus.base import Entry
from azq.replay.segments import LogEnd

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """Entries of one read, whose games are on disk."""

    end: LogEnd  # behind them in the log
    games: int  # in the log by then
    duplicates: int  # dropped by then
    ids: Sequence[str] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    unreadable: Sequence[tuple[Entry, str]] = ()  # letters to be kept once they are acknowledged


def acknowledgeable(held: Sequence[Held], kept: LogEnd | None, most: int, acknowledged: int) -> int:
    """How many of the oldest may be acknowledged: all that the store has, and what is more than `most` games.

    `kept`: how far the store has the log, None where it keeps no games; `acknowledged`: games that were before.
    """
    if kept is None or not held:
        return len(held)
    within = held[-1].games - max(most, 0)
    return sum(one.end <= kept or acknowledged < one.games <= within for one in held)


class Holding:
    """What was read and is not acknowledged yet, oldest first; at most about `most` games."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: deque[Held] = deque()
        self._alone: deque[Held] = deque()  # acknowledged, and on this host's disk alone
        self._before = 0  # games up to those
        self.last: Held | None = None  # that was acknowledged

    def __len__(self) -> int:
        return len(self._held)

    @property
    def ids(self) -> set[str]:
        return {entry for one in self._held for entry in one.ids}

    @property
    def alone(self) -> int:
        """Games that were acknowledged though the store has them not."""
        return self._alone[-1].games - self._before if self._alone else 0

    def add(self, held: Held) -> None:
        self._held.append(held)

    def ripe(self, kept: LogEnd | None) -> list[Held]:
        """What may be acknowledged now; told by `acknowledged` once it was."""
        count = acknowledgeable(self._held, kept, self._most, self.last.games if self.last else 0)
        return [self._held[place] for place in range(count)]

    def acknowledged(self, done: Sequence[Held], kept: LogEnd | None) -> None:
        for one in done:
            self._held.popleft()
            if kept is not None and one.end > kept:
                if not self._alone:
                    self._before = self.last.games if self.last else 0
                    log.warning("games_on_one_disk", reason="the store is away, or slower than games come", most_waiting=self._most)
                self._alone.append(one)
            self.last = one
        self._forget(kept)

    def _forget(self, kept: LogEnd | None) -> None:
        was = bool(self._alone)
        while self._alone and kept is not None and self._alone[0].end <= kept:
            self._before = self._alone.popleft().games
        if was and not self._alone:
            log.info("games_kept", games=self._before)
