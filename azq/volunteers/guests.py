"""The seam between a gateway and whoever knows its contributors; its double remembers them for as long as the process lives."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from azq.clock import now_ms
from azq.volunteers.judging import WORKER_PREFIX, samples_in
from azq.wire.messages import SampleEvent
from azq.wire.tabs import Refused

DAY_MS = 86_400_000


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

    def closed(self) -> str:
        """Why nobody may contribute now; empty where they may."""
        ...

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Games that were committed; the totals of their contributors with these among them."""
        ...

    def name(self, contributor: str) -> str:
        """What a contributor wants to be called."""
        ...

    def totals(self) -> Mapping[str, Mapping[str, int]]:
        """Games, samples and contributors of all, `ever` and in the last `month` and `day`."""
        ...

    def leaderboard(self) -> list[dict[str, object]]:
        """Names and devices with their games and samples, the best first; nothing else of anybody."""
        ...


class MemoryGuests:
    """Everybody is welcome."""

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._guests: dict[str, tuple[Guest, str]] = {}  # with his device
        self._deeds: dict[str, list[tuple[int, int]]] = {}  # when he did so many samples

    def welcome(self, token: str, invite: str, address: str, device: str) -> Guest | Refused:
        with self._lock:
            if token not in self._guests:
                token, contributor = secrets.token_urlsafe(18), f"guest-{len(self._guests) + 1}"
                self._guests[token] = Guest(contributor, token, contributor), device
            return self._guests[token][0]

    def closed(self) -> str:
        return ""

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        with self._lock:
            for event in events:
                self._deeds.setdefault(_who(event), []).append((self._clock_ms(), samples_in(event.record)))
            return {contributor: _sums(self._deeds[contributor]) for contributor in map(_who, events)}

    def name(self, contributor: str) -> str:
        return contributor

    def totals(self) -> Mapping[str, Mapping[str, int]]:
        spans = {"ever": 0, "month": self._clock_ms() - 30 * DAY_MS, "day": self._clock_ms() - DAY_MS}
        with self._lock:
            since = {
                name: [[deed for deed in deeds if deed[0] >= start] for deeds in self._deeds.values()] for name, start in spans.items()
            }
        return {name: _sums(list(chain(*found))) | {"contributors": sum(map(bool, found))} for name, found in since.items()}

    def leaderboard(self) -> list[dict[str, object]]:
        with self._lock:
            devices = {guest.contributor: device for guest, device in self._guests.values()}
            rows = [(name, _sums(deeds), deeds[-1][0]) for name, deeds in self._deeds.items()]
        ranked = sorted(rows, key=lambda row: -row[1]["games"])
        return [{"name": name, "device": devices.get(name, ""), **sums, "last_ms": last_ms} for name, sums, last_ms in ranked]


def _who(event: SampleEvent) -> str:
    return event.worker.removeprefix(WORKER_PREFIX)


def _sums(deeds: Sequence[tuple[int, int]]) -> dict[str, int]:
    return {"games": len(deeds), "samples": sum(samples for _, samples in deeds)}
