"""What routes have in common: lists in pages, requests with one effect however often sent, bytes, and errors as problem documents."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from azq import errors, logs
from azq.bus.base import Bus, Entry, order
from azq.config import RUN_NAME_PATTERN
from azq.errors import AzqError, InvalidRequest
from azq.ledger.types import RequestKey
from azq.masking import masked
from azq.status.schemas import ERROR_URN

LONGEST_CURSOR = 512
LOOK_AHEAD = 200  # entries after a page among which it may find the end of what belongs together

T = TypeVar("T")

Cursor = Annotated[
    str | None, Query(max_length=LONGEST_CURSOR, description="Where to go on: from the `Link` header of the page before, as it is.")
]


def _header(status: int, name: str, description: str) -> dict[int | str, dict[str, Any]]:
    """For the documentation: answers of this status may have that header."""
    return {status: {"headers": {name: {"description": description, "schema": {"type": "string"}}}}}


LINKED = _header(200, "Link", 'The next page, `<...>; rel="next"`; absent on the last one.')


def encode_cursor(kind: str, *place: str | int) -> str:
    """An opaque name of a place in the lists of this kind."""
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    """The place that a cursor names, as values of these types; None for no cursor. Raises `InvalidRequest`."""
    if cursor is None:
        return None
    try:
        named, *place = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _bad(kind) from None
    if named != kind or [type(part) for part in place] != list(types):
        raise _bad(kind)
    return tuple(place)


def _bad(kind: str) -> InvalidRequest:
    return InvalidRequest(f"invalid cursor for {kind}; take it from the `Link` header of the page before, or leave it out")


class Pages:
    """Where a request is in a list, and the way to the next page; `kind` names the list in its cursors."""

    def __init__(self, request: Request, response: Response, cursor: str | None) -> None:
        self._request = request
        self._cursor = cursor
        self.headers = response.headers

    def place(self, kind: str, *types: type) -> tuple[Any, ...] | None:
        """The last entry of the page before; None on the first page. Raises `InvalidRequest`."""
        return decode_cursor(kind, self._cursor, *types)

    def take(self, kind: str, items: Iterable[T], limit: int, place_of: Callable[[T], tuple[str | int, ...]]) -> list[T]:
        """The first `limit` items; where more follow, the answer's headers name the next page."""
        page = list(islice(items, limit + 1))
        if len(page) > limit:
            # Relative, as the daemon does not know by which name it is reached.
            url = self._request.url.include_query_params(cursor=encode_cursor(kind, *place_of(page[limit - 1])))
            self.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
        return page[:limit]

    def newest(
        self, kind: str, bus: Bus, stream: str, limit: int, uncut: Callable[[Sequence[Entry], int], int] | None = None
    ) -> list[Entry]:
        """Entries of a stream, newest first; `uncut` tells where a page of at least so many may end, of those and `LOOK_AHEAD` more."""
        place = self.place(kind, int, int)
        more = LOOK_AHEAD if uncut else 0
        entries = bus.newest(stream, limit + more + 1, before=f"{place[0]}-{place[1]}" if place else None)
        return self.take(kind, entries, uncut(entries[: limit + more], limit) if uncut else limit, lambda entry: order(entry.id))


async def _pages(request: Request, response: Response, cursor: Cursor = None) -> Pages:
    return Pages(request, response, cursor)


Paged: TypeAlias = Annotated[Pages, Depends(_pages)]

REPLAYED = "Idempotency-Replayed"

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,255}$",
        description="A name of your own for this request, such as a UUID. Sent again within a day with the same body it gets the first "
        "answer and changes nothing; with another body it is refused with 422.",
    ),
]
REPLAYS = _header(201, REPLAYED, "`true` on an answer that was given before under the same key.")


@dataclass(frozen=True, slots=True)
class Creation:
    """A request that creates something; under a key of its sender's it has its effect once."""

    request: Request
    response: Response
    key: str | None

    def once(self, body: BaseModel) -> RequestKey | None:
        """What the ledger knows the request by; None where no key was sent."""
        if self.key is None:
            return None
        place = f"{self.request.method} {self.request.url.path}"
        return RequestKey.of(place, self.key, json.dumps(body.model_dump(mode="json"), sort_keys=True).encode())

    def note(self, about: str, *, replayed: bool) -> None:
        """Says what came into being, to the audit, and in the answer's headers whether it did before."""
        self.request.state.about = about
        if replayed:
            self.response.headers[REPLAYED] = "true"


async def _creation(request: Request, response: Response, idempotency_key: IdempotencyKey = None) -> Creation:
    return Creation(request, response, idempotency_key)


Creating: TypeAlias = Annotated[Creation, Depends(_creation)]


def answer(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A frozen dataclass, or a list of them, as JSON; the route names the model for its documentation."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)


MEDIA_TYPE = "application/problem+json"

UNUSABLE = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
RETRY_AFTER_S: dict[int, str] = {HTTPStatus.SERVICE_UNAVAILABLE: "2", HTTPStatus.TOO_MANY_REQUESTS: "5"}

log = logs.get(__name__)


class BodyTooLarge(HTTPException):
    """More bytes than a request body may have."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request body may have {most_bytes} bytes")


def problem(
    status: int, detail: str, *, kind: str = "about:blank", instance: str = "", headers: dict[str, str] | None = None, **extra: Any
) -> JSONResponse:
    """A response of that status; `kind` names the error class, `extra` are further members."""
    body = {"type": kind, "title": HTTPStatus(status).phrase, "status": status, "detail": masked(detail), "instance": instance, **extra}
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def urn(kind: type[AzqError]) -> str:
    """The name of an error class as a problem's `type`; `azq.client` reads it back."""
    return ERROR_URN + kind.__name__


def install(app: FastAPI) -> None:
    """Makes every error of the app a problem document."""
    app.add_exception_handler(AzqError, _azq_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _crash)


async def _azq_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AzqError)
    status = error.http_status
    headers = {"Retry-After": RETRY_AFTER_S[status]} if status in RETRY_AFTER_S else None
    words = f"{error}{_folder_of(error.run, request)}" if isinstance(error, errors.NotFound) else str(error)
    return problem(status, words, kind=urn(type(error)), instance=request.url.path, headers=headers)


def _folder_of(run: str, request: Request) -> str:
    """What goes on from the folder of a run that the control plane does not know; empty where there is none."""
    folder = request.app.state.services.home.absolute() / run
    is_there = re.fullmatch(RUN_NAME_PATTERN, run) and (folder / "run.toml").is_file()
    return f"; its folder {folder} is there: `azq runs restore {folder}` goes on from it" if is_there else ""


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in error.errors()]
    detail = "; ".join(f"{item['where']}: {item['what']}" for item in faults)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, kind=urn(InvalidRequest), instance=request.url.path, errors=faults)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    kind = urn(InvalidRequest) if error.status_code in UNUSABLE else "about:blank"
    return problem(error.status_code, str(error.detail), kind=kind, instance=request.url.path, headers=headers)


async def _crash(request: Request, error: Exception) -> JSONResponse:
    log.error("request_crashed", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the daemon failed to answer; its log says why", instance=request.url.path)
