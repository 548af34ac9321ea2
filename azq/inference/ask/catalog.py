"""Which weights a run has published, followed in the control plane."""

from __future__ import annotations

from collections.abc import Sequence

from azq import logs
from azq.bus.base import Bus, Entry
from azq.errors import WireError
from azq.wire import codec, keys
from azq.wire.messages import LATEST, WeightEvent


class WeightCatalog:
    """The weight events of one run, by version."""

    def __init__(self, control: Bus, run: str) -> None:
        self._control = control
        self.stream = keys.weights(run)
        self.last_id = "0"
        self._events: dict[int, WeightEvent] = {}
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
                event = codec.decode(entry.frame, WeightEvent)
            except WireError as error:
                logs.get(__name__).warning("weight_event_unreadable", stream=entry.stream, entry=entry.id, error=str(error))
                continue
            if event.version not in self._events:
                self._events[event.version] = event
                self._order = sorted(self._events)

    def newest_first(self) -> list[WeightEvent]:
        """All events, newest version first."""
        return [self._events[version] for version in reversed(self._order)]

    def find(self, version: int) -> WeightEvent | None:
        """The event of a version, or of the newest for `LATEST`."""
        if version == LATEST:
            return self._events[self._order[-1]] if self._order else None
        return self._events.get(version)
