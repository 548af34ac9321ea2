"""What a run published under versions, as the stream has it where that stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from azq import logs
from azq.bus.base import Bus, Entry
from azq.errors import WireError
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import LATEST, Message, ModelEvent, WeightEvent

AnyEvent = TypeVar("AnyEvent", bound=Message)
Event = TypeVar("Event", bound=WeightEvent | ModelEvent)


class EventFollower(ABC, Generic[AnyEvent]):
    """Events of one kind of one run, read to where the stream stands; `what` they are is said of one that does not decode."""

    def __init__(self, control: Bus, stream: str, kind: type[AnyEvent], what: str) -> None:
        self._control = control
        self.stream = stream
        self.last_id = "0"
        self._kind: type[AnyEvent] = kind
        self._what = what

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
                self.add(decode(entry.frame, self._kind))
            except WireError as error:
                logs.get(__name__).warning(f"{self._what}_event_unreadable", stream=entry.stream, entry=entry.id, error=str(error))

    @abstractmethod
    def add(self, event: AnyEvent) -> None:
        """Takes the next event in."""


class VersionCatalog(EventFollower[Event]):
    """The events of one kind of one run, by version."""

    def __init__(self, control: Bus, stream: str, kind: type[Event], what: str) -> None:
        super().__init__(control, stream, kind, what)
        self._events: dict[int, Event] = {}
        self._order: list[int] = []  # ascending

    def add(self, event: Event) -> None:
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


class ModelCatalog(VersionCatalog[ModelEvent]):
    """The networks of one run that were made for browsers, by version; up to date whenever it is asked."""

    def __init__(self, control: Bus, run: str) -> None:
        super().__init__(control, keys.networks(run), ModelEvent, "model")
        self._older = VersionCatalog(control, keys.onnx(run), ModelEvent, "model")  # not as verifiers evaluate now

    def refresh(self) -> bool:
        return self._older.refresh() | super().refresh()

    def find(self, version: int) -> ModelEvent | None:
        """The network of a version; None: none was made yet."""
        event = super().find(version)
        return event if event is not None or not self._read() else super().find(version)

    def all(self) -> list[ModelEvent]:
        """Those of all versions that were made to play with, by an older azq too."""
        self._read()
        return [*{event.version: event for event in (*self._older.newest_first(), *self.newest_first())}.values()]

    def _read(self) -> bool:
        news = False
        while self.refresh():
            news = True
        return news
