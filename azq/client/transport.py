"""Requests to one daemon: token, patience, retries where a repetition is harmless, errors translated, event streams decoded."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from azq import errors
from azq.errors import AzqError, ConfigError, DaemonUnavailable, WireError
from azq.process.network import open_web, way_to
from azq.status.schemas import ERROR_URN, EventOut
from azq.waiting import Backoff

BY_NAME = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, AzqError)}
BY_STATUS: dict[int, type[AzqError]] = {
    **dict.fromkeys((401, 403, 421), errors.AccessDenied),
    **dict.fromkeys((405, 413, 415, 422), errors.InvalidRequest),
    404: errors.NotFound,
    409: errors.StateConflict,
    429: errors.TooManyRequests,
    503: DaemonUnavailable,
}
ATTEMPTS = 4
LONGEST_WAIT_S = 10.0
BACKOFF = Backoff(0.2, LONGEST_WAIT_S)
BUSY = frozenset({429, 503})
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout)  # nothing reached the daemon
START = "start"


def error_of(status: int, body: Any, place: str) -> AzqError:
    """The error that an answer stands for: by the problem's `type`, else by its status; `place` names the request."""
    document = body if isinstance(body, dict) else {}
    kind = BY_NAME.get(str(document.get("type", "")).removeprefix(ERROR_URN)) or BY_STATUS.get(status, AzqError)
    return kind(str(document.get("detail") or f"{place} was answered with status {status}; is this an azq daemon?"))


class Transport:
    """One daemon's address with a token; `http` replaces the connection in tests, `sleep` the waiting."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout_s: float = 10.0,
        trust: ssl.SSLContext | None = None,
        http: httpx2.Client | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is no address of a daemon; they look like http://127.0.0.1:8080")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = http or open_web(self._url, timeout_s=timeout_s, trust=trust)
        self._way = way_to(self._url)
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        timeout_s: float | None = None,
    ) -> httpx2.Response:
        """The answer to a request that was accepted; `timeout_s` where it may take longer than others.

        Tried again with growing waits while no daemon answers or the daemon is busy; one that is not `repeatable` only where it surely
        had no effect. Raises the error that the problem document names, `DaemonUnavailable` where there is none.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        timeout = httpx2.USE_CLIENT_DEFAULT if timeout_s is None else httpx2.Timeout(timeout_s)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                response = self._http.request(
                    method,
                    self._url + path,
                    params=given or None,
                    json=body,
                    headers={**self._headers, **(headers or {})},
                    timeout=timeout,
                )
            except httpx2.TransportError as error:
                if last or not (repeatable or isinstance(error, UNSENT)):
                    raise self._away(error) from None
                self._sleep(BACKOFF.pause_s(attempt + 1))
                continue
            if response.is_success:
                return response
            busy = response.status_code in BUSY and (repeatable or response.status_code == 429)
            if last or not busy:
                raise error_of(response.status_code, _document(response), f"{method} {path}{self._way}")
            self._sleep(_wait_s(response, attempt))
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str], *, silence_s: float | None = None) -> Iterator[httpx2.Response]:
        """An answer read as it comes; at most `silence_s` between two pieces. Tried once."""
        timeout = httpx2.USE_CLIENT_DEFAULT if silence_s is None else httpx2.Timeout(silence_s)
        try:
            with self._http.stream("GET", self._url + path, headers={**self._headers, **headers}, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response.status_code, _document(response), f"GET {path}{self._way}")
                yield response
        except httpx2.TransportError as error:
            raise self._away(error) from None

    def _away(self, error: Exception) -> DaemonUnavailable:
        remedy = "mend --url, or name its host in NO_PROXY" if self._way else "start `azq daemon`, or mend --url"
        return DaemonUnavailable(f"no daemon at {self._url}{self._way} ({type(error).__name__}: {error}); {remedy}")


def _document(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def _wait_s(response: httpx2.Response, attempt: int) -> float:
    header: str = response.headers.get("retry-after", "")
    wait_s = float(header) if header.isascii() and header.isdigit() else 0.0
    return min(LONGEST_WAIT_S, max(wait_s, BACKOFF.pause_s(attempt + 1)))


def parse_events(lines: Iterable[str]) -> Iterator[EventOut]:
    """The events of a stream's lines, the place where it begins among them as one of kind `start`. Raises `WireError`."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield _event(fields)
        elif fields.get("id"):
            yield EventOut(id=fields["id"], run="", kind=START, at_ms=0, about={})
        fields = {}


def _event(fields: dict[str, str]) -> EventOut:
    try:
        return EventOut.model_validate({**json.loads(fields["data"]), "id": fields.get("id", "")})
    except (ValueError, TypeError) as error:
        raise WireError(f"an event of the stream does not decode ({error}); is the daemon of another version?") from None
