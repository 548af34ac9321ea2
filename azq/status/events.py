"""What becomes of runs, read from streams of the control plane, and the audit stream of who changed what.

Each run has four streams: changes of runs and jobs, published weights, promoted ones, results. All ids come from one clock, that of the
broker, so the events of all of them have one order, and the id of any event says where to go on in every stream.
"""

from __future__ import annotations

import getpass
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azq import logs
from azq.bus.base import Bus, Entry, order
from azq.clock import now_ms
from azq.errors import BrokerError, InvalidRequest, WireError
from azq.ledger.types import KEPT_EVENTS
from azq.wire import keys
from azq.wire.codec import decode, decode_either, encode, skip_unreadable
from azq.wire.messages import AuditLine, GradeResult, MatchResult, PromotionEvent, RunEvent, WeightEvent

READ_AT_ONCE = 200  # of each stream
SETTLED_AFTER_S = 0.002
_STREAMS = {"e": keys.events, "r": keys.results, "w": keys.weights, "p": keys.promotions}
_EVENT_ID = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([eprw])-([a-z0-9][a-z0-9_-]{0,63})")

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, order=True)
class EventId:
    """Where an event stands among all events."""

    ms: int
    number: int
    letter: str
    run: str

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}-{self.letter}-{self.run}"


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One thing that became of a run."""

    id: EventId
    kind: str
    at_ms: int
    about: dict[str, Any]


BEGINNING = EventId(0, 0, "e", "0")


def parse_event_id(text: str) -> EventId:
    """An event's id as a place. Raises `InvalidRequest`."""
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        raise InvalidRequest("Last-Event-ID is no id of an event of this interface; send the last one received, or none")
    ms, number, letter, run = match.groups()
    return EventId(int(ms), int(number), letter, run)


def streams_of(runs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The streams of these runs: name -> letter and run."""
    return {name_of(run): (letter, run) for run in runs for letter, name_of in _STREAMS.items()}


def position_after(place: EventId, letter: str, run: str) -> str:
    """The id after which a stream goes on for a reader who has seen everything up to `place`."""
    if (letter, run) <= (place.letter, place.run) or (place.ms, place.number) == (0, 0):
        return f"{place.ms}-{place.number}"
    return f"{place.ms}-{place.number - 1}" if place.number else f"{place.ms - 1}-{2**64 - 1}"


def in_order(entries: Sequence[tuple[EventId, Entry]], most_each: int) -> list[tuple[EventId, Entry]]:
    """Entries by place, cut where a stream may hold more than was read: what follows there must not be overtaken."""
    by_stream: dict[str, list[EventId]] = {}
    for place, entry in entries:
        by_stream.setdefault(entry.stream, []).append(place)
    horizon = min((max(places) for places in by_stream.values() if len(places) >= most_each), default=None)
    return sorted(((place, entry) for place, entry in entries if horizon is None or place <= horizon), key=lambda pair: pair[0])


class EventReader:
    """One reader's way through the events of some runs; runs may join on the way."""

    def __init__(self, bus: Bus, runs: Iterable[str], after: EventId | None, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._bus = bus
        self._pause = pause
        self._streams = streams_of(runs)
        self.start = after or self._newest()  # a reader that breaks off before any event comes back here
        self._positions = {name: position_after(self.start, *stream) for name, stream in self._streams.items()}
        self.lost = [] if after is None else sorted(filter(None, (self._lost(name, after) for name in self._streams)))

    def join(self, runs: Iterable[str]) -> None:
        """Follows runs that came into being since, from their beginning."""
        for name, stream in streams_of(runs).items():
            if name not in self._streams:
                self._streams[name] = stream
                self._positions[name] = "0"

    def read(self) -> list[LiveEvent]:
        """What happened since the last call, in order, at most `READ_AT_ONCE` of each stream. Raises `BrokerError`."""
        seen = self._fetch()
        if not seen:
            return []
        newest_ms = max(place.ms for place, _ in seen)
        self._pause(SETTLED_AFTER_S)  # until no stream can get an entry of that millisecond any more, which would belong before others
        results = [(place, entry) for place, entry in self._fetch() if place.ms <= newest_ms]
        events = []
        for place, entry in in_order(results, READ_AT_ONCE):
            self._positions[entry.stream] = entry.id
            if (event := event_of(place, entry)) is not None:
                events.append(event)
        return events

    def _fetch(self) -> list[tuple[EventId, Entry]]:
        entries = self._bus.after_each(self._positions, count=READ_AT_ONCE)
        return [(_place(entry, *self._streams[entry.stream]), entry) for entry in entries]

    def _newest(self) -> EventId:
        entries = self._bus.newest_each(list(self._streams))
        return max((_place(entry, *self._streams[entry.stream]) for entry in entries if entry is not None), default=BEGINNING)

    def _lost(self, name: str, after: EventId) -> str:
        """The run whose events between `after` and now are not all there any more; empty where they are."""
        letter, run = self._streams[name]
        if letter != "e" or self._bus.length(name) < KEPT_EVENTS:
            return ""
        oldest = self._bus.after(name, "0", count=1)
        return run if oldest and _place(oldest[0], letter, run) > after else ""


def event_of(place: EventId, entry: Entry) -> LiveEvent | None:
    """The event that an entry tells of; None where it does not decode, which is logged."""
    with skip_unreadable(entry.place):
        return _READ[place.letter](place, entry.frame)
    return None


def _of_run(place: EventId, frame: bytes) -> LiveEvent:
    message = decode(frame, RunEvent)
    about: dict[str, Any] = {name: value for name, value in message.about.items() if value}
    if "job" in about:
        about |= {"job": f"{place.run}:{about['job']}", "attempt": int(about["attempt"])}
    return LiveEvent(place, message.kind, message.at_ms, about)


def _of_weights(place: EventId, frame: bytes) -> LiveEvent:
    message = decode(frame, WeightEvent)
    return LiveEvent(
        place, "weights.published", message.published_ms, {"version": message.version, "step": message.step, "sha256": message.sha256}
    )


def _of_promotions(place: EventId, frame: bytes) -> LiveEvent:
    message = decode(frame, PromotionEvent)
    return LiveEvent(
        place, f"weights.{message.deed}", message.at_ms, {"version": message.version, "reason": message.reason, "who": message.who}
    )


def _of_results(place: EventId, frame: bytes) -> LiveEvent:
    message = decode_either(frame, MatchResult, GradeResult)
    kind, names = _RESULTS[type(message)]
    if isinstance(message, MatchResult) and message.spec.of_games:
        part = {"part": f"{message.spec.first_game + 1} to {message.spec.first_game + message.spec.games} of {message.spec.of_games}"}
        return LiveEvent(place, "match.part", message.finished_ms, {name: getattr(message, name) for name in names} | part)
    return LiveEvent(place, kind, message.finished_ms, {name: getattr(message, name) for name in names})


_RESULTS: dict[type, tuple[str, tuple[str, ...]]] = {
    MatchResult: ("match.finished", ("first", "second", "wins", "draws", "losses", "error")),
    GradeResult: ("grade.finished", ("weight_version", "positions", "errors", "mean_loss")),
}
_READ = {"e": _of_run, "w": _of_weights, "p": _of_promotions, "r": _of_results}


def _place(entry: Entry, letter: str, run: str) -> EventId:
    return EventId(*order(entry.id), letter, run)


def condition_events(before: frozenset[str], now: frozenset[str]) -> list[tuple[str, Mapping[str, str]]]:
    """Conditions that began and ended between two looks, as kinds and details."""
    began = [("condition.began", {"condition": text}) for text in sorted(now - before)]
    return [*began, *(("condition.ended", {"condition": text}) for text in sorted(before - now))]


KEPT_LINES = 10_000
MOST_WAITING = 1000
CLOSE_S = 2.0


class Auditor:
    """Writes lines in a thread, so that no change waits for its line or fails with it; each is in the log as well."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lines: queue.Queue[AuditLine | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._start = threading.Lock()

    def note(self, line: AuditLine) -> None:
        """Says what was done; returns at once."""
        log.info("audit", who=line.who, what=line.what, address=line.address, status=line.status, about=line.about, key=line.key)
        with self._start:
            if self._thread.ident is None:
                self._thread.start()
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            log.error("audit_lost", what=line.what, reason="the control plane is too slow for them; the line above is all there is")

    def close(self) -> None:
        """Writes what waits, for a while."""
        if self._thread.ident is not None:
            self._lines.put(None)
            self._thread.join(CLOSE_S)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            write_line(self._bus, line)


def write_line(bus: Bus, line: AuditLine) -> None:
    """Appends a line; what it is about has happened already, so a failure is said and no error."""
    try:
        bus.publish(keys.AUDIT, encode(line), max_length=KEPT_LINES)
    except (BrokerError, WireError) as error:
        log.error("audit_lost", what=line.what, reason=str(error))


def write_command(bus: Bus, what: str, about: str) -> None:
    """A line for a command that changes something by itself, as the user who runs it."""
    write_line(bus, AuditLine(now_ms(), f"{_user()}@{socket.gethostname()}", what, about=about))


def _user() -> str:
    """This process's user; its number where it has no name, as in a container that runs as any."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # from Python 3.13 on the latter
        return str(os.getuid())


def line_of(entry: Entry) -> AuditLine | None:
    """The line in an entry; None, and said, where it does not decode."""
    with skip_unreadable(entry.place):
        return decode(entry.frame, AuditLine)
    return None
