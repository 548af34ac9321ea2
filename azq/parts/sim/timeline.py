"""A simulation's trace as one page that stands alone: processes as lanes, messages as arrows, faults, broken promises; a list beside them.

Time is stretched where much happens and cut where nothing does, so that each event has a place to itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import NamedTuple

from azq.tracing import SPANS

LAST, NEAR = 160, 160  # events shown: those nearest to the end, and those behind faults
ROW, TOP, NAMES, AXIS = 34.0, 58.0, 92, 22.0  # pixels
SECOND, CLOSEST, WIDEST = 90.0, 13.0, 64.0  # pixels of a second, and of the way from an event to the next
ORDER = ("operator", "daemon", "worker", "learner", "inference", "pool")
#: of events, by what they begin with; what is none of them says little: lookups, polls, signs of life
KINDS = {
    "fault": r"fault ",
    "broken": r"broken ",
    "end": r"killed|ended |crashed ",
    "message": r"publish |take \S",
    "disk": r"(write|fsync|rename|unlink)$",
    "span": rf"({'|'.join(SPANS)}) [0-9a-f]{{8}}$",  # as in the trace of a real game
    "call": r"(?!(snapshot|read|counts|count_work|renew|renew_learner|take|mend|jobs|job)$)[a-z]",
}
OF_ONE = ("kill", "cut_before", "cut_after", "freeze", "clock_jump")  # faults that meet the process they name


class TraceEvent(NamedTuple):
    """A line of the trace; `lane` is empty where it is of no process."""

    number: int
    at_s: float
    owner: str
    lane: str
    kind: str
    words: str


def events_of(trace: Sequence[str]) -> Iterator[TraceEvent]:
    """The events of a trace."""
    for number, at_s, owner, what in (line.split(" ", 3) for line in trace):
        kind = next((kind for kind, pattern in KINDS.items() if re.match(pattern, what)), "")
        lane, words = owner.split(":")[0].strip("-"), what.removeprefix("broken ")
        if kind == "fault":
            _, fault, meets = what.split(" ")
            words = fault.split(":")[1]
            lane = meets if words in OF_ONE else ""
        yield TraceEvent(int(number), float(at_s), owner, lane, kind, words)


def page(title: str, words: Iterable[str], trace: Sequence[str]) -> str:
    """The whole page. Pure."""
    picture = Picture(list(events_of(trace)))
    names = (_text(12, y + 4, "name", name) for name, y in picture.rows.items())
    return Template((files("azq.parts.sim") / "timeline.html").read_text("utf-8")).substitute(
        title=escape(title),
        style=(files("azq") / "web" / "look.css").read_text("utf-8"),
        words="\n".join(f"<p>{escape(line)}</p>" for line in words),
        last=picture.shown[-1].number,
        names=_svg(NAMES, picture.height, names),
        picture=_svg(picture.width, picture.height, picture.parts()),
        events="\n".join(map(_item, picture.shown)),
    )


class Picture:
    """Where lanes and events stand."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        telling = [event for event in events if event.kind]
        faults = [place for place, event in enumerate(telling) if event.kind == "fault"]
        near = {place + step for place in faults for step in range(1 + NEAR // len(faults))}
        self.events = events
        self.shown = [event for place, event in enumerate(telling) if place in near or place >= len(telling) - LAST]
        self._numbers = [event.number for event in self.shown]
        places = {name: [*ORDER, name].index(name.split("-")[0]) for name in {event.lane for event in events} if name}
        self.rows = {name: TOP + ROW * (row + 0.5) for row, name in enumerate(sorted(places, key=lambda name: (places[name], name)))}
        self._xs = [30.0]
        for before, event in pairwise(self.shown):
            self._xs.append(self._xs[-1] + min(max(CLOSEST, SECOND * (event.at_s - before.at_s)), WIDEST))
        self.width, self.height = self._xs[-1] + 400, TOP + ROW * len(self.rows) + AXIS

    def place(self, event: TraceEvent) -> tuple[float, float]:
        """Of an event, or of the last one before it that is shown; what is of no process stands above all."""
        return self._xs[max(0, bisect_right(self._numbers, event.number) - 1)], self.rows.get(event.lane, TOP)

    def parts(self) -> Iterator[str]:
        yield from (f'<line class="lane" x2="{self.width}" y1="{y}" y2="{y}"/>' for y in self.rows.values())
        yield from self._axis()
        yield from self._lives()
        yield from self._arrows()
        broken = [event for event in self.shown if event.kind == "broken"]
        labelled = [event for event in self.shown if event.kind == "fault" or event in broken[:1]]
        for row, event in enumerate(labelled):
            (x, y), top = self.place(event), 20 + 14 * (row % 3)
            down = y if event.kind == "fault" else self.height - AXIS
            yield f'<line class="to-{event.kind}" x1="{x}" x2="{x}" y1="{top}" y2="{down}"/>'
            yield _text(x + 4, top - 2, event.kind, event.words[:60])
        yield from map(self._mark, self.shown)

    def _axis(self) -> Iterator[str]:
        last, y = 0.0, self.height - AXIS
        for (x, following), event in zip(pairwise([*self._xs, 0.0]), self.shown, strict=True):
            if not last or x - last > WIDEST:
                yield _text(x, y + 16, "", f"{event.at_s:.3f} s")
                last = x
            if following - x == WIDEST:
                yield f'<line class="cut" x1="{x + 12}" x2="{following - 12}" y1="{y}" y2="{y}"/>'

    def _lives(self) -> Iterator[str]:
        """A band for each life of a process, and for how long a frozen one stands still."""
        lives: dict[str, tuple[TraceEvent, TraceEvent]] = {}
        for event in self.events:
            if event.owner != "-":
                lives[event.owner] = lives.get(event.owner, (event, event))[0], event
        bands = [("life", *span) for span in lives.values()]
        for fault in (event for event in self.shown if event.kind == "fault" and event.words == "freeze"):
            later = (event for event in self.events if event.number > fault.number and event.lane == fault.lane)
            bands.append(("frozen", fault, next(later, self.events[-1])))
        for kind, first, last in bands:
            (x, y), end = self.place(first), self.place(last)[0]
            if end > x:
                yield f'<rect class="{kind}" x="{x - 5}" width="{end - x + 10}" y="{y - 11}" height="22" rx="5"/>'

    def _arrows(self) -> Iterator[str]:
        sent: dict[str, TraceEvent] = {}
        for event in self.shown:
            verb, _, message = event.words.partition(" ")
            if verb == "publish":
                sent[message] = event
            elif verb == "take" and message in sent:
                (x, y), (to_x, to_y) = self.place(sent[message]), self.place(event)
                bend = max(12.0, (to_x - x) / 2)
                yield f'<path class="arrow" marker-end="url(#tip)" d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"/>'

    def _mark(self, event: TraceEvent) -> str:
        x, y = self.place(event)
        arm = {"fault": 6, "broken": 6, "end": 4}.get(event.kind)
        shape = f'<path d="M{x - arm} {y}l{arm} -{arm}l{arm} {arm}l-{arm} {arm}z"/>' if arm else f'<circle cx="{x}" cy="{y}" r="3.5"/>'
        title = f"<title>{event.at_s:.3f} s {escape(event.owner)} {escape(event.words)}</title>"
        return f'<a {_anchor("m", event)}class="mark {event.kind}" href="#e{event.number}" tabindex="-1">{title}{shape}</a>'


def _item(event: TraceEvent) -> str:
    kind = f"{event.kind} " * (event.kind in ("fault", "broken"))
    text = f"<b>{escape(event.lane)}</b> {kind}{escape(event.words)}"
    return f'<li {_anchor("e", event)}class="{event.kind}"><a href="#m{event.number}">{event.at_s:.3f} s</a> {text}</li>'


def _anchor(side: str, event: TraceEvent) -> str:
    """The place that the event's other side links to; a span has the number of an event."""
    return f'id="{side}{event.number}" ' if event.kind != "span" else ""


def _svg(width: float, height: float, parts: Iterable[str]) -> str:
    return f'<svg width="{width}" height="{height}" aria-hidden="true">{"".join(parts)}</svg>'


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'
