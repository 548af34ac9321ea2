"""The REST interface put together, with the static files of its pages and `/docs`: nothing is built, fetched from elsewhere or secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse

import azq
from azq.process.site import Assets, Guarded
from azq.status.events import Auditor
from azq.status.schemas import ProblemOut
from daemon.api import conventions, events, fleet, jobs, moves, recorded, runs, weights
from daemon.api.access import IDENTITY, Guard, Keyring
from daemon.api.conventions import MEDIA_TYPE
from daemon.api.events import Trail
from daemon.api.limits import BURST_S, Limiter, Turns
from daemon.api.services import Services

DESCRIPTION = "Runs, jobs, workers, weights, matches and the ledger of one azq control plane. Every error is an RFC 9457 problem document."


def create_app(services: Services, of_parts: Iterable[APIRouter] = ()) -> FastAPI:
    """The ASGI app over `services`, with the routes of parts."""
    error = {"model": ProblemOut, "description": "Problem", "content": {MEDIA_TYPE: {}}}
    app = FastAPI(
        title="azq",
        version=azq.__version__,
        description=DESCRIPTION,
        responses={"4XX": error, "5XX": error},
        redirect_slashes=False,
        strict_content_type=True,  # a body without a JSON content type is none, as the guard says too
        docs_url=None,  # FastAPI's own pages load scripts from other hosts
        redoc_url=None,
        servers=[{"url": "./"}],  # beside the schema, whatever prefix that has
    )
    app.state.services = services
    for router in (
        *(runs.router, weights.router, weights.promotions, events.router, events.audit_router),
        *(recorded.router, recorded.compared, recorded.studies, moves.router, jobs.router, fleet.router, *of_parts),
    ):
        app.include_router(router)
    app.add_api_route("/docs", reference, include_in_schema=False, response_class=HTMLResponse)
    app.router.routes += Assets({"page": FOLDER, "web": WEB}).routes(LEADING)
    conventions.install(app)
    app.state.turns = Turns(moves.SEARCHES, moves.QUEUE)
    app.state.auditor = Auditor(services.bus)
    app.add_middleware(Trail, auditor=app.state.auditor, clock_ms=services.clock_ms)
    make_limiter = partial(Limiter, services.rate_per_s, max(1.0, BURST_S * services.rate_per_s))
    app.add_middleware(Guard, keyring=Keyring.of(services.config), make_limiter=make_limiter)
    app.add_middleware(Guarded)
    return app


FOLDER = str(files("daemon") / "page")
WEB = str(files("azq") / "web")  # the play page, and what all pages share
LEADING = {"/": "./page/", "/play": "./web/play/", "/favicon.ico": "./web/icon.svg"}
REFERENCE = files("daemon.api") / "reference.html"
METHODS = ("get", "post", "put", "patch", "delete")


def reference(request: Request) -> HTMLResponse:
    """The page. It tells what this azq can do and nothing of what it holds, so it needs no token."""
    return HTMLResponse(render_reference(request.app.openapi(), tell_version=request.scope[IDENTITY] is not None))


def render_reference(schema: Mapping[str, Any], *, tell_version: bool = True) -> str:
    """An OpenAPI schema as HTML: a row for each operation, with the scope that a token needs."""
    lines = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in reference_rows(schema))
    version = f" {schema['info']['version']}" if tell_version else ""
    title, about = escape(f"{schema['info']['title']}{version}"), escape(schema["info"]["description"])
    return Template(REFERENCE.read_text("utf-8")).substitute(title=title, about=about, rows=lines)


def reference_rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Method, path, scope and first line of each operation's description, escaped, in the schema's order."""
    for path, item in schema["paths"].items():
        for method in METHODS:
            if (operation := item.get(method)) is not None:
                scopes = {scope for entry in operation.get("security", ()) for held in entry.values() for scope in held}
                first = (operation.get("description") or operation.get("summary", "")).strip().partition("\n")[0]
                yield method.upper(), f"<code>{escape(path)}</code>", escape(", ".join(sorted(scopes)) or "none"), escape(first)
