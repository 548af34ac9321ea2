"""How the brokers are, as `azq status`, `azq top` and `azq doctor` show it."""

from __future__ import annotations

from collections.abc import Sequence

import redis
from rich.text import Text

from azq.config import BrokerConfig
from azq.status.brokers import Plane, PlaneFacts, open_planes
from azq.wire.connect import open_client

ASK_TIMEOUT_S = 1.0  # a plane that hangs holds up whoever looks for so long


def planes_of(broker: BrokerConfig, control: redis.Redis) -> tuple[Plane, ...]:
    """All planes of a fleet, asked over connections of their own but for the control plane."""
    return open_planes(control, [open_client(url, timeout_s=ASK_TIMEOUT_S) for url in broker.data_planes])


def brokers_text(planes: Sequence[PlaneFacts]) -> Text:
    """One line: each plane with its memory, what waits there and what nobody could read, or that it is away."""
    line = Text("brokers")
    for plane in planes:
        line.append(f"  {plane.plane} ")
        line.append(_state(plane) if plane.up else "does not answer", style="" if plane.up else "bold red")
    return line


def conditions(planes: Sequence[PlaneFacts]) -> tuple[str, ...]:
    """What an operator should know of them."""
    return tuple(f"broker {plane.plane} does not answer" for plane in planes if not plane.up)


def _state(plane: PlaneFacts) -> str:
    limit = f" of {plane.limit_bytes / 1e6:.0f}" if plane.limit_bytes else ""
    waiting, dead = sum(plane.waiting.values()), plane.dead_letters
    what = "samples" if plane.plane == "control" else "requests"
    return f"{plane.used_bytes / 1e6:.1f}{limit} MB, {waiting} {what} wait" + (f", {dead} dead letters" if dead else "")
