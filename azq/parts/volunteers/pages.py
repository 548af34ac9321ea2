"""What a gateway answers over HTTP: the pages, networks by their hash, what everybody may know of its runs. Nothing here needs a token."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from starlette import status
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from azq import logs
from azq.errors import AzqError, NotFound
from azq.parts.volunteers.gateway import Gateway
from azq.parts.volunteers.models import Networks
from azq.parts.volunteers.public import Public
from azq.process.site import POLICY, SOCKETS, Guarded, WebFiles

FOLDER = str(files("azq") / "web")
FOREVER = "public, max-age=31536000, immutable"
NETWORKS_KEPT = 4
PUBLIC_LIFE_S = 2.0

log = logs.get(__name__)


class OwnHosts:
    """Answers who asks by an address, by localhost or by the gateway's own name, and speaks with pages of these alone.

    A page of another site would make its visitors' browsers tabs of a gateway in their network, and one whose name leads there now
    (rebinding) could read from it.
    """

    def __init__(self, app: ASGIApp, url: str) -> None:
        self._app = app
        self._own = urlsplit(url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._takes(Headers(scope=scope), scope["type"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            text = "this gateway answers at an address, at localhost and at what its setting gateway.url names\n"
            await PlainTextResponse(text, HTTPStatus.MISDIRECTED_REQUEST)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": status.WS_1008_POLICY_VIOLATION, "reason": "another site's page"})

    def _takes(self, headers: Headers, kind: str) -> bool:
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if not (_is_address(_name(f"//{host}")) or (self._own.netloc and _name(f"//{host}") == self._own.hostname)):
            return False
        return kind != "websocket" or not origin or urlsplit(origin).netloc in (host, self._own.netloc or host)


def _name(url: str) -> str:
    """The host of an address; empty where it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(host))
    return host == "localhost"


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


def make_site(gateway: Gateway, networks: Networks, public: Public, url: str = "") -> ASGIApp:
    """The gateway's pages and its WebSocket, with the gateway's own tasks for as long as it serves; `url` is what people reach it by."""

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
        Route("/", to("./web/contribute/")),
        Route("/progress", to("./web/progress/")),
        Route("/play", to("./web/play/")),
        Route("/favicon.ico", to("./web/icon.svg")),
        Route("/healthz", is_well),
        Route("/v1/public", PublicFigures(public.figures).answer),
        Route("/v1/public/play", PublicFigures(public.playable).answer),
        Route("/v1/public/games/{uid:int}", game),
        Route("/models/{name}", network_files(networks)),
        WebSocketRoute("/v1/volunteers/tab", gateway.talk),
        Mount("/web", WebFiles(directory=FOLDER, html=True, check_dir=False)),
    ]
    return Guarded(OwnHosts(Starlette(routes=routes, lifespan=life), url), POLICY + SOCKETS)
