"""What the daemon asks of processes, and what they answer."""

from __future__ import annotations

from typing import Literal

from azq.wire.messages import Message

Topic = Literal["log", "stack"]


class ProcessQuestion(Message, frozen=True):
    """One question to one process."""

    id: str  # its answer goes to the reply list of this name
    topic: Topic
    lines: int = 0  # of the log, at most


class ProcessAnswer(Message, frozen=True):
    """What the process said, in lines without their ends."""

    worker: str
    lines: tuple[str, ...]


class WantedRuns(Message, frozen=True):
    """Runs that inference workers are to serve whatever their state: somebody wants moves of them."""

    runs: tuple[str, ...]
