"""What azq asks of a message bus: streams with consumer groups, reply lists, values with a life, dead letters.

Of one broker it is `azq.bus.redis.RedisBus`, of several data planes `azq.bus.sharded`.
Every method may raise `BrokerUnavailable` or `BrokerRefused`; none retries by itself except where it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import DeadLetter

DEAD_LENGTH = 1000  # newest dead letters kept
HEAD_BYTES = 16 * 1024  # of each, so that a flood of large ones cannot fill the broker


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame read from a stream."""

    stream: str
    id: str
    frame: bytes

    @property
    def place(self) -> str:
        """Where it is, for logs."""
        return f"{self.stream} {self.id}"


class RequestBus(Protocol):
    """What serving evaluation requests needs of a data plane, be it one broker or several."""

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: float) -> list[Entry]:
        """Up to `count` new frames of each stream for this consumer of the group, oldest first. block_ms=0: do not wait.

        Creates missing groups at the stream's start.
        """

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        """Takes over entries that were read, by any consumer, and not acknowledged for `min_idle_ms`; oldest first."""

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        """Acknowledges and deletes entries in one step; ids that are gone are passed over."""

    def reply(self, replies: Iterable[tuple[str, bytes]], *, life_s: int = 60) -> None:
        """Appends frames to reply lists (key, frame) in one round trip; each list lives `life_s` from its newest frame."""
        self.answer(replies, "", "", (), life_s=life_s)

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        """`reply`, then `ack` of the entries that were answered, in one round trip."""

    def dead_letter(self, entry: Entry, reason: str) -> None:
        """Counts an unreadable frame and keeps its head in the capped stream `azq:dead`; acknowledging it stays with the caller."""

    def close(self) -> None:
        """Drops connections; a later call opens new ones."""


class AskingBus(Protocol):
    """What asking for evaluations needs of a data plane."""

    def post(self, stream: str, frame: bytes, *, max_length: int | None = None) -> None:
        """Appends a frame without waiting for the broker's word, which the same thread's next `take_replies` hears and may raise."""

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        """Waits for at least one frame of a reply list and takes up to `count`; [] after `timeout_s`."""

    def delete(self, *names: str) -> None:
        """Deletes keys of any type."""

    def close(self) -> None:
        """Drops connections; a later call opens new ones."""


class Bus(RequestBus, AskingBus, Protocol):
    """One broker instance (control plane or data plane)."""

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        """Appends a frame and returns its id. `max_length` is a fuse (approximate trim), not the bound: credits are."""

    def post(self, stream: str, frame: bytes, *, max_length: int | None = None) -> None:
        self.publish(stream, frame, max_length=max_length)

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        """Appends a frame to each stream named with it, in one round trip."""

    def after(self, stream: str, last_id: str, *, count: int = 1000) -> list[Entry]:
        """Frames after `last_id` ("0" from the start) without a group: every reader sees all."""

    def newest(self, stream: str, count: int = 1, *, before: str | None = None) -> list[Entry]:
        """The newest frames, newest first; with `before` those older than that id."""

    def after_each(self, last_ids: Mapping[str, str], *, count: int = 1000) -> list[Entry]:
        """Up to `count` frames of each stream after the id given for it, read at one moment, by age."""

    def wait_for_newer(self, last_ids: Mapping[str, str], *, timeout_s: float) -> list[str]:
        """Streams with an entry after the id given for them, as soon as there is one; [] after `timeout_s`."""

    def newest_each(self, streams: Sequence[str]) -> list[Entry | None]:
        """The newest frame of each stream, in one round trip; None where there is none."""

    def length(self, stream: str) -> int:
        """Entries in a stream."""

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        """Sets a value, with a life where given."""

    def get(self, key: str) -> bytes | None:
        return self.get_each([key])[0]

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        """The values of many keys, in one round trip; None where there is none."""

    def values(self, prefix: str) -> dict[str, bytes]:
        """All live values whose key starts with `prefix`, by key; may walk the whole key space, so not for hot paths."""

    def ping(self) -> float:
        """Seconds of one round trip."""

    def dead_letters(self) -> int:
        """Unreadable frames counted by this instance so far."""
        return int(self.get(keys.DEAD_COUNT) or 0)


def order(entry_id: str) -> tuple[int, int]:
    """An entry id as a pair that sorts by age."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def dead_frame(entry: Entry, reason: str, now_ms: int) -> bytes:
    """The dead letter of an entry; its reason says so where only the frame's head is kept."""
    cut = f"{reason} (first {HEAD_BYTES} of {len(entry.frame)} bytes kept)" if len(entry.frame) > HEAD_BYTES else reason
    return encode(DeadLetter(entry.stream, entry.id, cut, entry.frame[:HEAD_BYTES], now_ms))
