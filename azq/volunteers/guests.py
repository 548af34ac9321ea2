"""The seam between a gateway and whoever knows its contributors; its double remembers them for as long as the process lives."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from azq.volunteers.judging import samples_in
from azq.wire.messages import SampleEvent
from azq.wire.tabs import Refused


@dataclass(frozen=True, slots=True)
class Guest:
    """A contributor as a gateway knows him."""

    contributor: str
    token: str
    name: str = ""


class Guests(Protocol):
    """Who may contribute, and what they did. Each call may take a while and raise `BrokerError`; safe to share between threads."""

    def welcome(self, token: str, invite: str, address: str, device: str) -> Guest | Refused:
        """The contributor of a token, a new one without, or why he may not."""
        ...

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Games that were committed; the totals of their contributors with these among them."""
        ...

    def leaderboard(self) -> list[dict[str, object]]:
        """Contributors with their totals, the best first; nothing else of them."""
        ...


class MemoryGuests:
    """Everybody is welcome."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: dict[str, Guest] = {}
        self._totals: dict[str, Counter[str]] = {}

    def welcome(self, token: str, invite: str, address: str, device: str) -> Guest | Refused:
        with self._lock:
            if token not in self._guests:
                token, contributor = secrets.token_urlsafe(18), f"guest-{len(self._guests) + 1}"
                self._guests[token] = Guest(contributor, token, contributor)
            return self._guests[token]

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        totals: dict[str, Counter[str]] = {}
        with self._lock:
            for event in events:
                contributor = event.worker.removeprefix("browser:")
                totals[contributor] = known = self._totals.setdefault(contributor, Counter())
                known.update(games=1, samples=samples_in(event.record))
            return {contributor: dict(known) for contributor, known in totals.items()}

    def leaderboard(self) -> list[dict[str, object]]:
        with self._lock:
            ranked = sorted(self._totals.items(), key=lambda each: -each[1]["games"])
            return [{"name": contributor, **totals} for contributor, totals in ranked]
