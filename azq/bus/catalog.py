"""What a run published under versions, as the stream has it where that stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from azq import logs
from azq.bus.base import Bus, Entry
from azq.errors import WireError
from azq.wire.codec import decode
from azq.wire.messages import LATEST, ModelEvent, WeightEvent

Event = TypeVar("Event", WeightEvent, ModelEvent)


class VersionCatalog(Generic[Event]):
    """The events of one kind of one run, by version; `what` they are is said of one that does not decode."""

    def __init__(self, control: Bus, stream: str, kind: type[Event], what: str) -> None:
        self._control = control
        self.stream = stream
        self.last_id = "0"
        self._kind: type[Event] = kind
        self._what = what
        self._events: dict[int, Event] = {}
        self._order: list[int] = []  # ascending

    def refresh(self) -> bool:
        """Reads new events; True when there were any."""
        entries = self._control.after(self.stream, self.last_id)
        self.take(entries)
        return bool(entries)

    def take(self, entries: Sequence[Entry]) -> None:
        """Adds events that were read; one that does not decode is passed over and said."""
        for entry in entries:
            self.last_id = entry.id
            try:
                event = decode(entry.frame, self._kind)
            except WireError as error:
                logs.get(__name__).warning(f"{self._what}_event_unreadable", stream=entry.stream, entry=entry.id, error=str(error))
                continue
            if event.version not in self._events:
                self._events[event.version] = event
                self._order = sorted(self._events)

    def newest_first(self) -> list[Event]:
        return [self._events[version] for version in reversed(self._order)]

    def find(self, version: int) -> Event | None:
        """The event of a version, or of the newest for `LATEST`."""
        if version == LATEST:
            return self._events[self._order[-1]] if self._order else None
        return self._events.get(version)
