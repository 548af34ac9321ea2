"""The queues of all runs together."""

from __future__ import annotations

from fastapi import APIRouter

from azq.status.queues import QueueStatus, queue_table
from daemon.api.scopes import READ
from daemon.api.services import Use

router = APIRouter(prefix="/v1/queues", tags=["queues"])


@router.get("", dependencies=[READ])
def list_queues(use: Use) -> list[QueueStatus]:
    """What waits and what runs in each queue, and the live workers and slots it has."""
    return queue_table(use.workers(), use.ledger.jobs(), use.clock_ms())
