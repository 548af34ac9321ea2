"""Server-sent events as values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from azq.errors import WireError
from azq.status.schemas import EventOut

START = "start"


def parse_events(lines: Iterable[str]) -> Iterator[EventOut]:
    """The events of a stream's lines, the place where it begins among them as one of kind `start`. Raises `WireError`."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield _event(fields)
        elif fields.get("id"):
            yield EventOut(id=fields["id"], run="", kind=START, at_ms=0, about={})
        fields = {}


def _event(fields: dict[str, str]) -> EventOut:
    try:
        return EventOut.model_validate({**json.loads(fields["data"]), "id": fields.get("id", "")})
    except (ValueError, TypeError) as error:
        raise WireError(f"an event of the stream does not decode ({error}); is the daemon of another version?") from None
