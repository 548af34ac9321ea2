"""Problem documents as azq's errors. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from azq.errors import AccessDenied, AzqError, DaemonUnavailable, InvalidRequest, NotFound, StateConflict, TooManyRequests

URN = "urn:azq:error:"
BY_STATUS: dict[int, type[AzqError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    405: InvalidRequest,
    409: StateConflict,
    413: InvalidRequest,
    415: InvalidRequest,
    421: AccessDenied,
    422: InvalidRequest,
    429: TooManyRequests,
    503: DaemonUnavailable,
}


def error_of(status: int, body: Any, place: str) -> AzqError:
    """The error that an answer stands for: by the problem's `type`, else by its status; `place` names the request."""
    document = body if isinstance(body, dict) else {}
    named = _classes().get(str(document.get("type", "")).removeprefix(URN))
    kind = named or BY_STATUS.get(status, AzqError)
    return kind(str(document.get("detail") or f"{place} was answered with status {status}; is this an azq daemon?"))


def _classes() -> dict[str, type[AzqError]]:
    def walk(kind: type[AzqError]) -> Iterator[type[AzqError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from walk(child)

    return {kind.__name__: kind for kind in walk(AzqError)}
