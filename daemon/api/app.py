"""The REST interface put together."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI

import azq
from azq.process.redirects import RelativeRedirects
from azq.process.site import Guarded
from azq.status.audit import Auditor
from azq.status.schemas import ProblemOut
from daemon.api import audit, compare, events, fleet, jobs, moves, page, problems, promotions, recorded, runs, studies, weights
from daemon.api.access import Keyring
from daemon.api.audit import Trail
from daemon.api.guard import MAX_BODY_BYTES, Guard
from daemon.api.limits import Limiter, Turns
from daemon.api.problems import MEDIA_TYPE
from daemon.api.services import Services

DESCRIPTION = "Runs, jobs, workers, weights, matches and the ledger of one azq control plane. Every error is an RFC 9457 problem document."


def create_app(services: Services, *, max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """The ASGI app over `services`."""
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
    for module in (runs, weights, promotions, events, audit, recorded, compare, studies, moves, jobs, fleet, page):
        app.include_router(module.router)
    page.mount(app)
    problems.install(app)
    config = services.config
    app.state.turns = Turns(config.move_searches, config.move_queue)
    app.state.auditor = Auditor(services.bus)
    app.add_middleware(Trail, auditor=app.state.auditor, clock_ms=services.clock_ms)
    make_limiter = partial(Limiter, config.rate_per_s, config.rate_burst)
    app.add_middleware(Guard, keyring=Keyring.of(config), make_limiter=make_limiter, max_body_bytes=max_body_bytes)
    app.add_middleware(RelativeRedirects)
    app.add_middleware(Guarded)
    return app
