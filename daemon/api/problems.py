"""Errors as RFC 9457 problem documents: one shape for what azq raises, what validation finds and what routing refuses."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from azq import errors, logs
from azq.config import RUN_NAME_PATTERN
from azq.errors import AzqError, InvalidRequest
from azq.masking import masked
from azq.status.schemas import ERROR_URN

MEDIA_TYPE = "application/problem+json"

STATUS_OF: dict[type[AzqError], HTTPStatus] = {  # the nearest class of an error's ancestry decides
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.BrokerError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ConfigError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.EvaluationTimeout: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EvaluatorFailure: HTTPStatus.BAD_GATEWAY,
    errors.HostError: HTTPStatus.GATEWAY_TIMEOUT,
    errors.InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.MissingExtra: HTTPStatus.NOT_IMPLEMENTED,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.SegmentError: HTTPStatus.BAD_GATEWAY,
    errors.StateConflict: HTTPStatus.CONFLICT,
    errors.StoreError: HTTPStatus.BAD_GATEWAY,
    errors.TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    errors.UnknownTagError: HTTPStatus.CONFLICT,
    errors.WeightsError: HTTPStatus.BAD_GATEWAY,
    errors.WireError: HTTPStatus.BAD_GATEWAY,
}
UNUSABLE = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
RETRY_AFTER_S = {HTTPStatus.SERVICE_UNAVAILABLE: "2", HTTPStatus.TOO_MANY_REQUESTS: "5"}

log = logs.get(__name__)


class BodyTooLarge(HTTPException):
    """More bytes than a request body may have."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request body may have {most_bytes} bytes")


def problem(
    status: int, detail: str, *, kind: str = "about:blank", instance: str = "", headers: dict[str, str] | None = None, **extra: Any
) -> JSONResponse:
    """A response of that status; `kind` names the error class, `extra` are members of its own."""
    body = {"type": kind, "title": HTTPStatus(status).phrase, "status": status, "detail": masked(detail), "instance": instance, **extra}
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def urn(kind: type[AzqError]) -> str:
    """The name of an error class as a problem's `type`; `azq.client` reads it back."""
    return ERROR_URN + kind.__name__


def status_of(error: AzqError) -> HTTPStatus:
    """The HTTP status of an azq error."""
    return next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), HTTPStatus.INTERNAL_SERVER_ERROR)


def install(app: FastAPI) -> None:
    """Makes every error of the app a problem document."""
    app.add_exception_handler(AzqError, _azq_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _crash)


async def _azq_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AzqError)
    status = status_of(error)
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
    found = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in error.errors()]
    detail = "; ".join(f"{item['where']}: {item['what']}" for item in found)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, kind=urn(InvalidRequest), instance=request.url.path, errors=found)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    kind = urn(InvalidRequest) if error.status_code in UNUSABLE else "about:blank"
    return problem(error.status_code, str(error.detail), kind=kind, instance=request.url.path, headers=headers)


async def _crash(request: Request, error: Exception) -> JSONResponse:
    log.error("request_crashed", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the daemon failed to answer; its log says why", instance=request.url.path)
