"""What the daemon asks of processes, and what they answer."""

from __future__ import annotations

from azq.wire.messages import Message


class WantedRuns(Message, frozen=True):
    """Runs that inference workers are to serve whatever their state: somebody wants moves of them."""

    runs: tuple[str, ...]
