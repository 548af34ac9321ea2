"""Which version of a run serves: self-play, tabs and the arena's `latest` follow it. What the events say is pure."""

from __future__ import annotations

from collections.abc import Sequence

from azq.bus.base import Bus
from azq.bus.catalog import EventFollower
from azq.wire import keys
from azq.wire.messages import LATEST, Deed, PromotionEvent

SERVE: tuple[Deed, ...] = ("promoted", "rolled_back")
PINS: tuple[Deed, ...] = ("pinned", "unpinned")


class Promotions(EventFollower[PromotionEvent]):
    """What became of the versions of one run, oldest first, and which serves."""

    def __init__(self, control: Bus, run: str) -> None:
        super().__init__(control, keys.promotions(run), PromotionEvent, "promotion")
        self.events: list[PromotionEvent] = []
        self.version = LATEST  # that serves; LATEST: the run's own rule says which
        self.at_ms = 0  # since when

    def add(self, event: PromotionEvent) -> None:
        self.events.append(event)
        if (now := serving(self.events)) != self.version:
            self.version, self.at_ms = now, event.at_ms


def serving(events: Sequence[PromotionEvent]) -> int:
    """The version that serves: the pinned one, else the best; `LATEST`: the run's own rule says which."""
    return pinned(events) or best(events)


def pinned(events: Sequence[PromotionEvent]) -> int:
    """The version that serves whatever is promoted meanwhile; 0: none is pinned."""
    return next((event.version if event.deed == "pinned" else 0 for event in reversed(events) if event.deed in PINS), 0)


def best(events: Sequence[PromotionEvent]) -> int:
    """The version that was promoted last, or gone back to; `LATEST`: none was."""
    return next((event.version for event in reversed(events) if event.deed in SERVE), LATEST)


def candidate(events: Sequence[PromotionEvent]) -> int:
    """The version that is being tried against the best; 0: none is."""
    tried = next((event.version for event in reversed(events) if event.deed == "candidate"), 0)
    return tried if tried > best(events) and state_of(events, tried) == "candidate" else 0


def judged(events: Sequence[PromotionEvent]) -> int:
    """The highest version that was promoted, rejected or tried; 0: none was."""
    return max((event.version for event in events if event.deed not in PINS), default=0)


def state_of(events: Sequence[PromotionEvent], version: int) -> str:
    """What became of a version last, pins aside; empty: nothing yet."""
    return next((event.deed for event in reversed(events) if event.version == version and event.deed not in PINS), "")


def before(served: Sequence[int], version: int) -> int:
    """What served before a version did for the first time, of versions in the order in which they served; 0: none did."""
    place = served.index(version) if version in served else 0
    return served[place - 1] if place else 0


def served(events: Sequence[PromotionEvent]) -> list[int]:
    """The best versions, in the order in which they were."""
    return [event.version for event in events if event.deed in SERVE]


def needed(events: Sequence[PromotionEvent]) -> set[int]:
    """Versions whose weights may serve again at once: the pinned one, the best, the one before it, and the candidate."""
    return {pinned(events), best(events), before(served(events), best(events)), candidate(events)} - {0}
