"""What all pages of azq are served with: headers by which they trust their own origin alone, and files named by what is in them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import os
import posixpath
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    ("default-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'")
)
SOCKETS = "; connect-src 'self' ws: wss:"  # of pages that speak over a WebSocket, which not every browser counts as 'self'
HEADERS = {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
SHEET = '<link rel="stylesheet" href="(.+?)">'
FOREVER = "public, max-age=31536000, immutable"
PACKED = (".css", ".html", ".js", ".mjs", ".svg", ".wasm", ".webmanifest")
UNPACKED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")  # networks do not become smaller


class Guarded:
    """Puts the headers on every answer, and compresses text that is not packed already for browsers that accept it."""

    def __init__(self, app: ASGIApp, policy: str = POLICY) -> None:
        self._app = GZipMiddleware(app, compresslevel=6, exclude_content_types=UNPACKED)
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                policies = self._policy, *headers.getlist("Content-Security-Policy")  # the answer's own stands beside
                headers.update({"Content-Security-Policy": "; ".join(policies), **HEADERS})
                headers.setdefault("Cache-Control", "no-cache")  # asked again each time: a new azq brings its own pages
            await send(message)

        await self._app(scope, receive, guarded if scope["type"] == "http" else send)


class Assets:
    """Folders of pages and of what these load, by their place below a site's root, and once more below a name of all that is in them.

    What pages load has that name, so that a browser keeps it for good and asks for the page alone.
    """

    def __init__(self, folders: Mapping[str, str | Path]) -> None:
        self._folders = {place: Path(folder) for place, folder in folders.items()}
        self.digest = ""  # as of the last page
        self._written = lru_cache(32)(self._write)  # more than a server has pages

    def routes(self, leading: Mapping[str, str]) -> list[BaseRoute]:
        """Where a server has the folders, and paths that lead to a page; relative, as a proxy may have put a prefix before them."""
        places = [(f"{base}/{place}", place) for base in ("", "/assets-{digest}") for place in self._folders]
        mounts = [Mount(path, WebFiles(self._folders[place], self, place)) for path, place in places]
        return [*(Route(path, RedirectResponse(target), methods=["GET"]) for path, target in leading.items()), *mounts]

    def name(self) -> str:
        """The folder that is named by what is in these now."""
        digest = hashlib.sha256()
        for place, folder in self._folders.items():
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                digest.update(f"{place}/{path.relative_to(folder)} {_digest(str(path), path.stat().st_mtime_ns)}\n".encode())
        self.digest = digest.hexdigest()[:12]
        return f"assets-{self.digest}"

    def page(self, place: str, root: str, *, styled: bool = False) -> str:
        """The page in a folder, for a place from which `root` leads to the site's: modules load at once, and `styled` it is painted so."""
        return self._written(self.name(), place, root, styled)

    def _write(self, name: str, place: str, root: str, styled: bool) -> str:
        def moved(link: re.Match[str]) -> str:
            target = posixpath.normpath(posixpath.join(place, link[2]))
            is_asset = not target.endswith(".webmanifest") and self._file(target).is_file()  # that one links to pages
            return f'{link[1]}="{root}{name}/{target}"' if is_asset else link[0]

        text = self._file(f"{place}/index.html").read_text("utf-8")
        if styled:
            text = re.sub(SHEET, lambda link: f"<style>{self._file(f'{place}/{link[1]}').read_text('utf-8')}</style>", text)
        modules = [posixpath.join(place, script) for script in re.findall(r'<script type="module" src="(.+?)"', text)]
        for module in modules:  # which grows by what they import
            names = re.findall(r'^import .* from "(\..+)";?$', self._file(module).read_text("utf-8"), re.MULTILINE)
            imported = dict.fromkeys(posixpath.normpath(posixpath.join(posixpath.dirname(module), name)) for name in names)
            modules += [module for module in imported if module not in modules]
        preloads = "".join(f'<link rel="modulepreload" href="{root}{name}/{module}">\n' for module in modules)
        return re.sub(r'\b(href|src)="([^":]+)"', moved, text).replace("</head>", f"{preloads}</head>")

    def _file(self, target: str) -> Path:
        place, _, rest = posixpath.normpath(target).partition("/")
        return self._folders.get(place, Path(os.devnull)) / rest


class WebFiles(StaticFiles):
    """The files of pages, known by what is in them, so that an upgrade leaves with browsers what it did not change.

    What is kept packed is sent as it lies there; text and the core are packed once, in a thread, for browsers that accept it.
    """

    def __init__(self, directory: Path, assets: Assets | None = None, place: str = "") -> None:
        super().__init__(directory=directory, html=True, check_dir=False)
        self._folder, self._assets, self._place = directory.resolve(), assets, place

    def file_response(self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = HTTPStatus.OK) -> Response:
        file, digest, own = Path(full_path), scope.get("path_params", {}).get("digest"), ""
        if self._assets and file.name == "index.html" and not digest:
            place = Path(self._place, file.parent.relative_to(self._folder)).as_posix()
            text = self._assets.page(place, "../" * (1 + place.count("/")), styled=True)
            response: Response = HTMLResponse(text, headers={"ETag": f'"{hashlib.sha256(text.encode()).hexdigest()}"'})
            hashes = (hashlib.sha256(style.encode()).digest() for style in re.findall("<style>(.*?)</style>", text, re.DOTALL))
            own = " ".join(("style-src 'self'", *(f"'sha256-{base64.b64encode(sha256).decode()}'" for sha256 in hashes)))
        else:
            headers = {"ETag": f'"{_digest(str(file), stat_result.st_mtime_ns)}"'}
            response = FileResponse(file, status_code, headers, stat_result=stat_result)
        if self._assets and digest == self._assets.digest:
            response.headers["Cache-Control"] = FOREVER
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            response = NotModifiedResponse(response.headers)
        if own:
            response.headers["Content-Security-Policy"] = own
        return response

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
        headers = {name: response.headers[name] for name in ("etag", "cache-control") if name in response.headers}
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        body = await asyncio.to_thread(_packed, str(response.path), response.headers["etag"])
        return Response(body, media_type=response.media_type, headers=headers)


@cache
def _digest(file: str, mtime_ns: int) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


@cache
def _packed(file: str, _etag: str) -> bytes:
    return gzip.compress(Path(file).read_bytes(), mtime=0)
