"""Dead letters: what is kept of a frame that nobody could read."""

from __future__ import annotations

from azq.bus.base import Entry
from azq.wire.codec import encode
from azq.wire.messages import DeadLetter

DEAD_LENGTH = 1000  # newest dead letters kept
HEAD_BYTES = 16 * 1024  # of each, so that a flood of large ones cannot fill the broker


def dead_frame(entry: Entry, reason: str, now_ms: int) -> bytes:
    """The dead letter of an entry; its reason says so where only the frame's head is kept."""
    cut = f"{reason} (first {HEAD_BYTES} of {len(entry.frame)} bytes kept)" if len(entry.frame) > HEAD_BYTES else reason
    return encode(DeadLetter(entry.stream, entry.id, cut, entry.frame[:HEAD_BYTES], now_ms))
