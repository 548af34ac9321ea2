"""What a gateway answers over HTTP: the pages, networks by their hash, what everybody may know of its runs. Nothing here needs a token."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, lru_cache, partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from azq import logs
from azq.errors import AzqError, NotFound
from azq.process.redirects import RelativeRedirects
from azq.volunteers.backing import Networks
from azq.volunteers.gateway import Gateway
from azq.volunteers.public import Public

FOLDER = str(files("azq") / "web")
CORE = "azq.wasm"
FOREVER = "public, max-age=31536000, immutable"
NETWORKS_KEPT = 4
PUBLIC_LIFE_S = 2.0
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' ws: wss:; "
    "worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

log = logs.get(__name__)


class Guarded:
    """Puts the headers on every answer, without touching its body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, guarded if scope["type"] == "http" else send)


class WebFiles(StaticFiles):
    """The files of the pages, known by what is in them, so that an upgrade leaves with browsers what it did not change.

    What is kept packed is sent as it lies there, and the core is packed for who takes that.
    """

    def file_response(self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = HTTPStatus.OK) -> Response:
        headers = {"ETag": f'"{_digest(str(full_path), stat_result.st_mtime_ns)}"'}
        response = FileResponse(full_path, status_code, headers, stat_result=stat_result)
        return NotModifiedResponse(response.headers) if self.is_not_modified(response.headers, Headers(scope=scope)) else response

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if path.endswith(".gz"):
            response.headers["Content-Encoding"] = "gzip"
        if path == CORE and response.status_code == HTTPStatus.OK and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            headers = {"ETag": response.headers["etag"], "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            body = await asyncio.to_thread(_packed, Path(str(self.directory), path))
            return Response(body, media_type="application/wasm", headers=headers)
        return response


@cache
def _digest(file: str, mtime_ns: int) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


@cache
def _packed(file: Path) -> bytes:
    return gzip.compress(file.read_bytes(), mtime=0)


def network_files(networks: Networks) -> Callable[[Request], Awaitable[Response]]:
    """`/models/<sha256>.onnx`: what a name says never changes."""

    @lru_cache(NETWORKS_KEPT)
    def read(sha256: str) -> bytes:
        if (data := networks.read(sha256)) is None:
            raise NotFound("nobody was told of it")
        return data

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        found = re.fullmatch(r"([0-9a-f]{64})\.onnx", name)
        if found is None:
            return PlainTextResponse(f"no network {name} is served here", HTTPStatus.NOT_FOUND)
        headers = {"ETag": f'"{found[1]}"', "Cache-Control": FOREVER}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            return Response(await asyncio.to_thread(read, found[1]), media_type="application/octet-stream", headers=headers)
        except AzqError as error:
            log.warning("network_unread", sha256=found[1], reason=str(error))
            return PlainTextResponse(f"no network {name} is served here", HTTPStatus.NOT_FOUND)

    return answer


class PublicFigures:
    """What everybody may ask for of each run, `?run=NAME`, worked out at most every other second whoever asks."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._told: dict[str, tuple[float, bytes]] = {}  # until when, by run
        self._lock = asyncio.Lock()

    async def answer(self, request: Request) -> Response:
        run = request.query_params.get("run", "")
        async with self._lock:
            until_s, body = self._told.get(run, (0.0, b""))
            if time.monotonic() < until_s:
                return Response(body, media_type="application/json")
            answer = await answered(partial(self._tell, run))
            if answer.status_code == HTTPStatus.OK:
                self._told[run] = time.monotonic() + PUBLIC_LIFE_S, bytes(answer.body)
            return answer


async def answered(call: Callable[[], object]) -> Response:
    """What a call in a thread returns, as JSON, or why it returns nothing."""
    try:
        return Response(msgspec.json.encode(await asyncio.to_thread(call)), media_type="application/json")
    except NotFound as error:
        status, detail = HTTPStatus.NOT_FOUND, str(error)
    except AzqError as error:
        status, detail = HTTPStatus.SERVICE_UNAVAILABLE, f"no figures just now: {error}"
    return Response(msgspec.json.encode({"detail": detail}), status, media_type="application/json")


def make_site(gateway: Gateway, networks: Networks, public: Public) -> ASGIApp:
    """The gateway's pages and its WebSocket, with the gateway's own tasks for as long as it serves."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work) for work in (gateway.look(), gateway.turn())]
        yield
        await gateway.stop()
        for task in tasks:
            task.cancel()

    def to(place: str) -> Callable[[Request], Response]:
        return lambda request: RedirectResponse(place)

    def is_well(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def game(request: Request) -> Response:
        return await answered(partial(public.game, request.path_params["uid"], request.query_params.get("run", "")))

    routes: list[BaseRoute] = [
        Route("/", to("/web/contribute/")),
        Route("/progress", to("/web/progress/")),
        Route("/play", to("/web/play/")),
        Route("/favicon.ico", to("/web/icon.svg")),
        Route("/healthz", is_well),
        Route("/v1/public", PublicFigures(public.figures).answer),
        Route("/v1/public/play", PublicFigures(public.playable).answer),
        Route("/v1/public/games/{uid:int}", game),
        Route("/models/{name}", network_files(networks)),
        WebSocketRoute("/v1/volunteers/tab", gateway.talk),
        Mount("/web", WebFiles(directory=FOLDER, html=True, check_dir=False)),
    ]
    return Guarded(RelativeRedirects(Starlette(routes=routes, lifespan=life)))
