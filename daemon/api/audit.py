"""Who changed what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from azq.bus.base import order
from azq.status.audit import KEPT_LINES, line_of
from azq.status.schemas import AuditOut
from azq.wire import keys
from daemon.api.paging import LINKED, Cursor, decode_cursor, encode_cursor, link_next, take_page
from daemon.api.scopes import OPERATE
from daemon.api.services import Use

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("", responses=LINKED, dependencies=[OPERATE])
def list_audit(
    use: Use, request: Request, response: Response, limit: Annotated[int, Query(ge=1, le=KEPT_LINES)] = 200, cursor: Cursor = None
) -> list[AuditOut]:
    """Changes asked for over REST by those who may make them, and made by commands, newest first; the newest 10,000 or so are kept."""
    place = decode_cursor("audit", cursor, int, int)
    before = f"{place[0]}-{place[1]}" if place else None
    page, after = take_page(
        use.bus.newest(keys.AUDIT, limit + 1, before=before), limit, lambda entry: encode_cursor("audit", *order(entry.id))
    )
    link_next(request, response, after)
    return [AuditOut.of(line) for line in map(line_of, page) if line is not None]
