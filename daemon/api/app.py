"""The REST interface put together."""

from __future__ import annotations

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

import azq
from daemon.api import fleet, games, history, jobs, metrics, page, problems, queues, runs
from daemon.api.guard import MAX_BODY_BYTES, Guard
from daemon.api.problems import MEDIA_TYPE
from daemon.api.schemas import ProblemOut
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
        dependencies=[Security(HTTPBearer(auto_error=False, description="daemon.token, where one is set"))],
        redirect_slashes=False,
    )
    app.state.services = services
    for module in (runs, history, games, jobs, queues, fleet, metrics, page):
        app.include_router(module.router)
    page.mount(app)
    problems.install(app)
    app.add_middleware(Guard, token=services.config.token.get_secret_value(), max_body_bytes=max_body_bytes)
    return app
