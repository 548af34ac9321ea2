"""Messages of which a test says what it needs, with plain values for the rest."""

from __future__ import annotations

from typing import Any

from azq.wire.messages import Heartbeat, LearnerStatus


def heartbeat(role: str = "selfplay", worker: str = "w", host: str = "h", **fields: Any) -> Heartbeat:
    """A heartbeat of azq 0 from process 1, sent at 0 ms."""
    plain: dict[str, Any] = {"pid": 1, "version": "0", "schema": 1, "started_ms": 0, "sent_ms": 0}
    return Heartbeat(role, worker, host, **plain | fields)


def learner_status(**figures: Any) -> LearnerStatus:
    """The status of a learner that neither waits nor stalls; figures that are not given are 0."""
    plain: dict[str, Any] = dict.fromkeys(LearnerStatus.__struct_fields__, 0)
    return LearnerStatus(**plain | {"members": (), "each_rank": (), "stall_selfplay": False, "waiting": False} | figures)
