"""`azq events --audit`: who changed what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile

from azq.client import Client
from azq.status.schemas import AuditOut

SHOWN = 100
LOOK_S = 1.0


def read_audit(client: Client, *, follow: bool, pause: Callable[[float], object] = time.sleep) -> Iterator[AuditOut]:
    """The newest lines in the order in which they were written; with `follow` those that come, without end."""
    shown = list(islice(client.audit(), SHOWN))
    yield from reversed(shown)
    while follow:
        pause(LOOK_S)
        last = shown[0] if shown else None
        fresh = list(takewhile(lambda line: line != last, client.audit()))  # noqa: B023 - it is used up before the next turn
        yield from reversed(fresh)
        shown = fresh or shown


def audit_text(line: AuditOut) -> str:
    """One line for people."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at_ms / 1000))
    answered = f" -> {line.status}" if line.status else ""
    return f"{when}  {line.who:<24}{line.address:<16}{line.what}{answered}" + (f"  {line.about}" if line.about else "")
