"""Redirects that lead to the same place below whatever prefix a proxy has put a site."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RelativeRedirects:
    """An app all of whose redirects, which must be to its own paths, are relative to what was asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on one request."""

        async def relative(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "location" in headers:
                    headers["location"] = relative_to(scope.get("raw_path", scope["path"].encode()).decode(), headers["location"])
            await send(message)

        await self._app(scope, receive, relative if scope["type"] == "http" else send)


def relative_to(path: str, location: str) -> str:
    """The place of a redirect, an address or a path of this site, as seen from `path`. Pure."""
    parts = urlsplit(location)
    up = "../" * (path.count("/") - 1) or "./"
    return urlunsplit(("", "", up + parts.path.lstrip("/"), parts.query, parts.fragment))
