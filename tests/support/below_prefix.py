"""A site below a path prefix, as a proxy puts it there, and a walk along all links of its pages."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from waiting import until

from azq.host.fronts import free_port

PREFIX = "/azq"
IN_HTML = re.compile(r'\b(?:href|src|action)="([^"#][^"]*)"')
IN_SCRIPT = re.compile(r'\b(?:from|import) "([^"]+)"|new URL\("([^"]+)", import\.meta\.url\)|\bimport\("([^"]+)"\)')
IN_STYLE = re.compile(r"""\burl\(["']?([^"')]+)""")
SOURCES = {"text/html": IN_HTML, "text/javascript": IN_SCRIPT, "application/javascript": IN_SCRIPT, "text/css": IN_STYLE}

# Ports above are chosen by the kernel; a proxy of its own folder, in the foreground, as whoever runs the tests.
CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port};
    location {prefix}/ {{
      proxy_pass {url}/;
      proxy_set_header Host $http_host;
      proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;
    }}
  }}
}}
"""


class Answer(NamedTuple):
    """What a site answers, redirects not followed."""

    status: int
    kind: str
    location: str
    text: str


@contextlib.contextmanager
def nginx(folder: Path, url: str) -> Iterator[str]:
    """The address, prefix and all, at which a proxy passes on to the site at `url`; skips where nginx is not installed."""
    program = which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, prefix=PREFIX, url=url))
    command = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    with (folder / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            until(lambda: (folder / "pid").exists() or process.poll() is not None, "nginx")
            assert process.poll() is None, (folder / "said").read_text()
            yield f"http://127.0.0.1:{port}{PREFIX}"
        finally:
            process.terminate()


class Prefixed:
    """An app as it is seen through a proxy that takes the prefix away; elsewhere nothing is found."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on one request."""
        path = scope["path"]
        inner = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else "/no/such/place"
        await self._app({**scope, "path": inner, "raw_path": inner.encode()}, receive, send)


def walk(ask: Callable[[str], Answer], base: str, starts: tuple[str, ...]) -> set[str]:
    """Follows redirects, links, imports and assets from these pages of the site at `base`; the places found, without names of content.

    Fails where one lies outside `base` or is not answered with 200.
    """
    waiting, seen = [f"{base}{start}" for start in starts], set[str]()
    while waiting:
        url = waiting.pop()
        if url in seen:
            continue
        assert url.startswith(f"{base}/"), f"{url} lies outside {base}"
        seen.add(url)
        answer = ask(url)
        if answer.location:
            assert not urlsplit(answer.location).netloc, f"{url} leads to {answer.location}, which a proxy would have to rewrite"
            waiting.append(urljoin(url, answer.location))
            continue
        assert answer.status == 200, f"{url} is answered {answer.status}"
        pattern = SOURCES.get(answer.kind.partition(";")[0])
        for found in pattern.findall(answer.text) if pattern and "/vendor/" not in url else ():
            place = found if isinstance(found, str) else "".join(found)
            if not place.startswith(("data:", "node:")) and not (pattern is IN_SCRIPT and place.endswith("/")):  # what others lie in
                waiting.append(urljoin(url, place).partition("#")[0])
    return {re.sub(r"^/assets-\w+", "", url.removeprefix(base)) for url in seen}
