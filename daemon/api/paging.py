"""Lists in pages: an opaque cursor says where the next page begins, so that what is inserted meanwhile moves nothing. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response

from azq.errors import InvalidRequest

LONGEST_CURSOR = 512

T = TypeVar("T")

Cursor = Annotated[
    str | None, Query(max_length=LONGEST_CURSOR, description="Where to go on: from the `Link` header of the page before, as it is.")
]
LINKED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Link": {"description": 'The next page, `<...>; rel="next"`; absent on the last one.', "schema": {"type": "string"}},
        }
    }
}


def encode_cursor(kind: str, *place: str | int) -> str:
    """An opaque name of a place in the lists of this kind."""
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    """The place that a cursor names, as values of these types; None for no cursor. Raises `InvalidRequest`."""
    if cursor is None:
        return None
    try:
        found, *place = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _bad(kind) from None
    if found != kind or [type(part) for part in place] != list(types):
        raise _bad(kind)
    return tuple(place)


def _bad(kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"cursor is none that a list of {kind} gave out; take it from the `Link` header of the page before, or leave it out"
    )


def take_page(items: Iterable[T], limit: int, place_of: Callable[[T], str]) -> tuple[list[T], str | None]:
    """The first `limit` items, and the cursor after the last of them where more follow."""
    page = list(islice(items, limit + 1))
    return page[:limit], place_of(page[limit - 1]) if len(page) > limit else None


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Names the next page in the answer's headers; relative, as the daemon does not know by which name it is reached."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
