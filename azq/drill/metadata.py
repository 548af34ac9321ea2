"""A provider's instance metadata as a spot machine sees it, on loopback: nothing, until an interruption is announced."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from azq.host.ending.notice import ACTION, TOKEN, TOKEN_HEADER, TOKEN_LIFE


class Metadata(ThreadingHTTPServer):
    """Answers as AWS's version 2 does: a token for a PUT, and what is announced for a GET with that token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.token = secrets.token_hex(8)
        self.announced: dict[str, str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def announce(self, action: str = "terminate", time: str = "2026-01-13T12:00:00Z") -> None:
        self.announced = {"action": action, "time": time}

    def renew(self) -> None:
        """Earlier tokens count no more."""
        self.token = secrets.token_hex(8)


class _Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        known = self.path == TOKEN and self.headers.get(TOKEN_LIFE, "").isdigit()
        self._answer(200 if known else 400, self.server.token if known else "")

    def do_GET(self) -> None:
        if self.headers.get(TOKEN_HEADER) != self.server.token:
            self._answer(401)
        elif self.path != ACTION or self.server.announced is None:
            self._answer(404)
        else:
            self._answer(200, json.dumps(self.server.announced))

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def metadata() -> Iterator[Metadata]:
    """Serves for the length of a block."""
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="metadata", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
