"""The dashboard's static files: nothing is built, nothing is fetched from elsewhere, nothing in them is secret."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, RedirectResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = str(files("daemon") / "page")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked again each time, answered 304: a new daemon brings its own page
}

router = APIRouter(include_in_schema=False)


class Page(StaticFiles):
    """Files with the headers of a page that trusts only its own origin."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, or 404."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


@router.get("/")
def root() -> RedirectResponse:
    """To the dashboard."""
    return RedirectResponse("/page/")


@router.get("/favicon.ico")
def icon() -> FileResponse:
    """The icon, for browsers that ask for it unasked."""
    return FileResponse(f"{FOLDER}/icon.svg", media_type="image/svg+xml", headers=HEADERS)


def mount(app: FastAPI) -> None:
    """Serves the files below `/page/`."""
    app.mount("/page", Page(directory=FOLDER, html=True), name="page")
