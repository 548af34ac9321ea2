"""Static files, those of the dashboard and those that all pages share, and `/docs`: nothing is built, fetched from elsewhere or secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse

from azq.process.site import WebFiles
from daemon.api.access import IDENTITY

FOLDER = str(files("daemon") / "page")
WEB = str(files("azq") / "web")  # the play page, and what all pages share
REFERENCE = files("daemon.api") / "reference.html"
router = APIRouter(include_in_schema=False)


@router.get("/")
def root() -> RedirectResponse:
    return RedirectResponse("/page/")


@router.get("/play")
def play() -> RedirectResponse:
    """A browser takes the fragment along, where a link has the position."""
    return RedirectResponse("/web/play/")


@router.get("/favicon.ico")
def icon() -> FileResponse:
    """The icon, for browsers that ask for it unasked."""
    return FileResponse(f"{WEB}/icon.svg", media_type="image/svg+xml")


def mount(app: FastAPI) -> None:
    """Serves the files below `/page/` and `/web/`."""
    for path, folder in (("/page", FOLDER), ("/web", WEB)):
        app.mount(path, WebFiles(directory=folder, html=True))


METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/docs")
def reference(request: Request) -> HTMLResponse:
    """The page. It tells what this azq can do and nothing of what it holds, so it needs no token."""
    return HTMLResponse(render(request.app.openapi(), tell_version=request.scope[IDENTITY] is not None))


def render(schema: Mapping[str, Any], *, tell_version: bool = True) -> str:
    """An OpenAPI schema as HTML: a row for each operation, with the scope that a token needs."""
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows(schema))
    lines = "\n".join(f"<tr>{row}</tr>" for row in cells)
    version = f" {schema['info']['version']}" if tell_version else ""
    title, about = escape(f"{schema['info']['title']}{version}"), escape(schema["info"]["description"])
    return Template(REFERENCE.read_text("utf-8")).substitute(title=title, about=about, rows=lines)


def rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Method, path, scope and first line of each operation's description, escaped, in the schema's order."""
    for path, item in schema["paths"].items():
        for method in METHODS:
            if (operation := item.get(method)) is not None:
                scopes = {scope for entry in operation.get("security", ()) for held in entry.values() for scope in held}
                does = operation.get("description") or operation.get("summary", "")
                first = does.strip().partition("\n")[0]
                yield method.upper(), f"<code>{escape(path)}</code>", escape(", ".join(sorted(scopes)) or "none"), escape(first)
