"""A gateway's answers over HTTP: the pages, networks by their hash, public figures of its runs. Nothing here needs a token."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette import status
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from azq import logs
from azq.arena.levels import Playable, playable
from azq.bus.base import Bus
from azq.bus.catalog import ModelCatalog
from azq.errors import AzqError, NotFound, WireError
from azq.games.files import GameFiles
from azq.parts.volunteers.gateway import Gateway
from azq.parts.volunteers.hub import Backing, RunHub
from azq.parts.volunteers.models import Networks
from azq.process.site import FOREVER, POLICY, SOCKETS, Assets, Guarded
from azq.ratings.elo import version_of
from azq.status.observe import Standings, read_standing
from azq.status.strength import TOO_FEW, Standing, headline_kind, trends
from azq.status.viewer import GameView, view
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import BROWSER_PREFIX, LearnerStatus, MatchResult, SampleEvent

FOLDER = str(files("azq") / "web")
LEADING = {"/": "./web/contribute/", "/progress": "./web/progress/", "/play": "./web/play/", "/favicon.ico": "./web/icon.svg"}
NETWORKS_KEPT = 4
PUBLIC_LIFE_S = 2.0
LEADERS = 100
SHOWN = 20  # of the newest games
NO_POINTS = {"points": None, "points_se": None, "against": ""}

log = logs.get(__name__)


class OwnHosts:
    """Answers requests to an address, to localhost or to the gateway's own name, and sockets of these pages alone.

    A page of another site would make its visitors' browsers tabs of a gateway in their network, and one whose name now leads there
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
        if not _is_own(host, self._own.hostname):
            return False
        return kind != "websocket" or not origin or urlsplit(origin).netloc in (host, self._own.netloc or host)


def _is_own(host: str, name: str | None) -> bool:
    """Whether a Host header has an address, localhost or this name."""
    try:
        hostname = urlsplit(f"//{host}").hostname or ""
        return hostname in ("localhost", name) or bool(ip_address(hostname))
    except ValueError:
        return False


def network_files(networks: Networks) -> Callable[[Request], Awaitable[Response]]:
    """`/models/<sha256>.onnx`: a name's content never changes."""

    @lru_cache(NETWORKS_KEPT)
    def read(sha256: str) -> bytes:
        if (data := networks.read(sha256)) is None:
            raise NotFound("no message named it")
        return data

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        match = re.fullmatch(r"([0-9a-f]{64})\.onnx", name)
        if match is None:
            return PlainTextResponse(f"no network {name} is served here", HTTPStatus.NOT_FOUND)
        headers = {"ETag": f'"{match[1]}"', "Cache-Control": FOREVER}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            return Response(await asyncio.to_thread(read, match[1]), media_type="application/octet-stream", headers=headers)
        except AzqError as error:
            log.warning("network_unread", sha256=match[1], reason=str(error))
            return PlainTextResponse(f"no network {name} is served here", HTTPStatus.NOT_FOUND)

    return answer


def public_figures(figures: Callable[[str], object]) -> Callable[[Request], Awaitable[Response]]:
    """Public figures of each run, `?run=NAME`, computed at most every other second for all visitors."""
    cache: dict[str, tuple[float, bytes]] = {}  # with the end of its life, by run
    lock = asyncio.Lock()

    async def answer(request: Request) -> Response:
        run = request.query_params.get("run", "")
        async with lock:
            until_s, body = cache.get(run, (0.0, b""))
            if time.monotonic() < until_s:
                return Response(body, media_type="application/json")
            answer = await answered(partial(figures, run))
            if answer.status_code == HTTPStatus.OK:
                cache[run] = time.monotonic() + PUBLIC_LIFE_S, bytes(answer.body)
            return answer

    return answer


async def answered(call: Callable[[], object]) -> Response:
    """The result of a call in a thread as JSON, or the reason for its failure."""
    try:
        return Response(msgspec.json.encode(await asyncio.to_thread(call)), media_type="application/json")
    except NotFound as error:
        status, detail = HTTPStatus.NOT_FOUND, str(error)
    except AzqError as error:
        status, detail = HTTPStatus.SERVICE_UNAVAILABLE, f"no figures just now: {error}"
    return Response(msgspec.json.encode({"detail": detail}), status, media_type="application/json")


def make_site(gateway: Gateway, networks: Networks, public: Public, url: str = "") -> ASGIApp:
    """The gateway's pages and its WebSocket, with the gateway's own tasks for as long as it serves; `url` is its public address."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work) for work in (gateway.follow(), gateway.turn())]
        yield
        await gateway.stop()
        for task in tasks:
            task.cancel()

    async def game(request: Request) -> Response:
        return await answered(partial(public.game, request.path_params["uid"], request.query_params.get("run", "")))

    routes: list[BaseRoute] = [
        Route("/healthz", PlainTextResponse("ok\n"), methods=["GET"]),
        Route("/v1/public", public_figures(public.figures)),
        Route("/v1/public/play", public_figures(public.playable)),
        Route("/v1/public/games/{uid:int}", game),
        Route("/models/{name}", network_files(networks)),
        WebSocketRoute("/v1/volunteers/tab", gateway.talk),
        *Assets({"web": FOLDER}).routes(LEADING),
    ]
    return Guarded(OwnHosts(Starlette(routes=routes, lifespan=life), url), POLICY + SOCKETS)


class Public:
    """Public figures of the gateway's runs."""

    def __init__(self, gateway: Gateway, backing: Backing, bus: Bus) -> None:
        self._gateway = gateway
        self._ledger, self._contributors = backing.ledger, backing.contributors
        self._bus = bus
        self._standings = Standings()

    def figures(self, run: str = "") -> dict[str, Any]:
        """Of a run, by default the one with most tabs; empty where no run wants tabs. Raises `NotFound`, `AzqError`."""
        hub = self._hub(run)
        return self._of(hub) if hub else {}

    def playable(self, run: str = "") -> Playable | None:
        """What visitors play with against the same run; None without a run. Raises as `figures`."""
        hub = self._hub(run)
        if hub is None:
            return None
        run = hub.record.run
        return playable(run, hub.sections, ModelCatalog(self._bus, run).all(), read_standing(self._bus, run, self._standings).ratings)

    def game(self, uid: int, run: str = "") -> GameView:
        """One of the newest games of a run as `figures` finds it, ply by ply. Raises `NotFound`."""
        hub = self._hub(run)
        event = next((event for event in tuple(hub.newest) if event.record.uid == uid), None) if hub else None
        if hub is None or event is None:
            raise NotFound("this game is none of the newest")
        game = hub.sections.run
        named = msgspec.structs.replace(event, worker=self._name(event))
        return view(game.game, GameFiles().load(game.game, game.params), named)

    def _name(self, event: SampleEvent) -> str:
        return self._contributors.name(event.worker.removeprefix(BROWSER_PREFIX))

    def _hub(self, run: str) -> RunHub | None:
        hubs = dict(self._gateway.hubs)
        if run and run not in hubs:
            raise NotFound(f"no run {run} wants volunteers here; {'there is: ' + ', '.join(sorted(hubs)) if hubs else 'none does'}")
        return hubs.get(run) or max(hubs.values(), key=lambda hub: len(hub.sessions.tabs), default=None)

    def _of(self, hub: RunHub) -> dict[str, Any]:
        run, links, game = hub.record.run, tuple(self._gateway.links.values()), hub.sections.run.game
        standing = read_standing(self._bus, run, self._standings)
        measured = trends(game, standing)
        kind = headline_kind(game, measured)
        first = kind if kind in measured or not measured else next(iter(measured))  # what is measured, where its own measure is not
        return {
            "run": run,
            "game": game,
            "params": hub.sections.run.params,
            "headline": first,
            "strength": measured[first][-1].text if first in measured else "–",
            "trend": [
                {"version": measure.version, "value": measure.value, "low": measure.low, "high": measure.high}
                for measure in measured.get(first, ())
                if measure.text != TOO_FEW
            ],
            "state": str(self._ledger.run(run).state),
            "version": hub.network.version if hub.network else 0,
            "tabs": len(links),
            "contributors": len({link.volunteer.contributor for link in links if link.volunteer}),
            "totals": self._contributors.totals(),
            "run_totals": {"games": self._ledger.counts(run).finished, "samples": self._samples(run)},
            "leaders": self._contributors.leaderboard()[:LEADERS],
            "versions": _versions(standing),
            "runs": [
                {"run": name, "game": other.sections.run.game, "params": other.sections.run.params, "tabs": len(other.sessions.tabs)}
                for name, other in sorted(self._gateway.hubs.items())
            ],
            "newest": [
                {
                    "uid": event.record.uid,
                    "plies": len(event.record.actions) // 2,
                    "returns": event.returns,
                    "name": self._name(event),
                    "finished_ms": event.finished_ms,
                }
                for event in tuple(hub.newest)[: -SHOWN - 1 : -1]
            ],
        }

    def _samples(self, run: str) -> int:
        frame = self._bus.get(keys.learner_status(run))
        try:
            return decode(frame, LearnerStatus).samples_inserted if frame else 0
        except WireError:
            return 0


def _versions(standing: Standing) -> list[dict[str, Any]]:
    engines = {match.first: match for match in reversed(standing.matches) if _is_engine(match)}
    rows = []
    for rating in standing.ratings:
        if (version := version_of(rating.player)) is not None:
            match = engines.get(rating.player)
            points = {"points": match.points, "points_se": match.points_se, "against": match.second} if match else NO_POINTS
            rows.append({"version": version, "elo": rating.elo, "low": rating.low, "high": rating.high, "games": rating.games} | points)
    return sorted(rows, key=lambda row: row["version"])


def _is_engine(match: MatchResult) -> bool:
    return match.second.startswith("gnubg:") and not match.error
