"""The seam between a gateway and whoever knows its contributors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from azq.wire.messages import SampleEvent
from azq.wire.tabs import Refused


@dataclass(frozen=True, slots=True)
class Volunteer:
    """A contributor as a gateway knows him."""

    contributor: str
    token: str
    name: str = ""
    problem: str = ""  # why he is not called what he wants to be


class Guests(Protocol):
    """Who may contribute, and what they did. Each call may take a while and raise `BrokerError`; safe to share between threads."""

    def welcome(self, token: str, invite: str, address: str, device: str, name: str = "") -> Volunteer | Refused:
        """The contributor of a token, a new one without, or why he may not; called by `name` from now on where there is one."""
        ...

    def closed(self) -> str:
        """Why nobody may contribute now; empty where they may."""
        ...

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Games that were committed; the totals of their contributors with these among them."""
        ...

    def figures(self, contributors: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Games and samples of some, ever."""
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
