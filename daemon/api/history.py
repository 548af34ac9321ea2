"""How a run's figures went, for charts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from azq.status import history
from azq.status.history import History
from daemon.api.scopes import READ
from daemon.api.services import Use

router = APIRouter(prefix="/v1/runs", tags=["runs"])
LONGEST_MS = 14 * 24 * 3600 * 1000


@router.get("/{run}/history", dependencies=[READ])
def run_history(
    run: str,
    use: Use,
    since_ms: Annotated[int, Query(ge=0, lt=2**53, description="Milliseconds since 1970; absent: the last hour.")] | None = None,
    points: Annotated[int, Query(ge=1, le=2000, description="At most about so many moments; means over equal parts.")] = 240,
) -> History:
    """Figures over time in columns, oldest first; recorded every `daemon.history_every_s` while the run runs."""
    use.ledger.run(run)
    now_ms = use.clock_ms()
    start = max(now_ms - LONGEST_MS, now_ms - 3_600_000 if since_ms is None else since_ms)
    return history.downsample(history.read(use.bus, run, start), max(1, now_ms - start), points)
