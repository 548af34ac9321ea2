"""How long a device worked, by marks on its own queues: batches that overlap on two streams count once."""

from __future__ import annotations

from collections.abc import Callable

from azq.phases import DeviceEvent


class DeviceClock:
    """Adds up the time in which at least one batch ran; `make_event` makes a timing mark, recorded on the stream in use.

    Batches land in the order in which they ended; one landed by another thread at the same moment may be counted twice or not at all.
    """

    def __init__(self, make_event: Callable[[], DeviceEvent]) -> None:
        self._make_event = make_event
        self._landed: DeviceEvent | None = None  # the end of the batch that landed last
        self.busy_s = 0.0

    def mark(self) -> DeviceEvent:
        """A mark at this point of the stream in use."""
        event = self._make_event()
        event.record()
        return event

    def landed(self, begin: DeviceEvent, end: DeviceEvent) -> None:
        """Counts a finished batch, as far as it did not run while the one before it did."""
        lengths = [begin.elapsed_time(end)]
        if self._landed is not None:
            lengths.append(self._landed.elapsed_time(end))
        self._landed = end
        self.busy_s += max(0.0, min(lengths)) / 1e3
