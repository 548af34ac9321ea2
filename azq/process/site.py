"""What all pages of azq are served with: headers by which they trust their own origin alone, and files known by what is in them."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
from functools import cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    ("default-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'")
)
SOCKETS = "; connect-src 'self' ws: wss:"  # of pages that speak over a WebSocket, which not every browser counts as 'self'
HEADERS = {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
PACKED = (".css", ".html", ".js", ".mjs", ".svg", ".wasm", ".webmanifest")
UNPACKED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")  # networks do not become smaller


class Guarded:
    """Puts the headers on every answer, and compresses text that is not packed already for browsers that accept it."""

    def __init__(self, app: ASGIApp, policy: str = POLICY) -> None:
        self._app = GZipMiddleware(app, compresslevel=6, exclude_content_types=UNPACKED)
        self._headers = {"Content-Security-Policy": policy, **HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-cache")  # asked again each time: a new azq brings its own pages
            await send(message)

        await self._app(scope, receive, guarded if scope["type"] == "http" else send)


class WebFiles(StaticFiles):
    """The files of pages, known by what is in them, so that an upgrade leaves with browsers what it did not change.

    What is kept packed is sent as it lies there; text and the core are packed once, in a thread, for browsers that accept it.
    """

    def file_response(self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = HTTPStatus.OK) -> Response:
        headers = {"ETag": f'"{_digest(str(full_path), stat_result.st_mtime_ns)}"'}
        response = FileResponse(full_path, status_code, headers, stat_result=stat_result)
        return NotModifiedResponse(response.headers) if self.is_not_modified(response.headers, Headers(scope=scope)) else response

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if path.endswith(".gz"):
            response.headers["Content-Encoding"] = "gzip"
        if isinstance(response, RedirectResponse):  # of a folder without its slash; relative, as a proxy may have put a prefix before it
            folder, query = scope["path"].rpartition("/")[2], urlsplit(response.headers["location"]).query
            response.headers["location"] = urlunsplit(("", "", f"./{folder}/", query, ""))
        if not isinstance(response, FileResponse) or Path(response.path).suffix not in PACKED:
            return response
        if response.status_code != HTTPStatus.OK or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            return response
        headers = {"ETag": response.headers["etag"], "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        body = await asyncio.to_thread(_packed, str(response.path), response.headers["etag"])
        return Response(body, media_type=response.media_type, headers=headers)


@cache
def _digest(file: str, mtime_ns: int) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


@cache
def _packed(file: str, _etag: str) -> bytes:
    return gzip.compress(Path(file).read_bytes(), mtime=0)
