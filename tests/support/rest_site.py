"""A daemon's REST interface over the doubles of ledger and bus: in this process, or on a free port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from factories import heartbeat
from fastapi import FastAPI
from fastapi.testclient import TestClient
from memory_broker import MemoryBus, MemoryLedger

from azq import games
from azq.config import DaemonConfig
from azq.process.webserver import open_listener, url_of
from azq.wire import keys
from azq.wire.codec import encode
from daemon.api.app import create_app
from daemon.api.rest import rest_server
from daemon.api.services import Services
from daemon.serve.health import Health


class RestSite:
    """`config` are settings of the section `daemon`, `doubles` take the place of services."""

    def __init__(
        self,
        home: Path = Path("runs"),
        *,
        plane: tuple[Any, Any] | None = None,
        clock_ms: Callable[[], int] | None = None,
        health: Health | None = None,
        doubles: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        if plane is None:
            bus = MemoryBus()
            plane = MemoryLedger(bus, clock_ms=clock_ms), bus
        self.ledger: MemoryLedger
        self.bus: MemoryBus
        self.ledger, self.bus = plane
        self.health = health or Health()
        self.config = DaemonConfig(**config)
        given: dict[str, Any] = {**({"clock_ms": clock_ms} if clock_ms else {}), **(doubles or {})}
        self.services = Services(self.ledger, self.bus, self.config, self.health, home, games.names, **given)

    @cached_property
    def app(self) -> FastAPI:
        return create_app(self.services)

    @cached_property
    def http(self) -> TestClient:
        return TestClient(self.app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves while entered; gives the URL."""
        with open_listener(self.config) as listener:
            server = rest_server(self.app, listener, self.config)
            server.start()
            try:
                yield url_of(listener, tls=self.config.tls_certificate is not None)
            finally:
                self.services.streams.close()
                server.stop()

    def create(self, name: str = "first", headers: dict[str, str] | None = None, **body: Any) -> Any:
        """The answer to a new run."""
        return self.http.post("/v1/runs", json={"name": name, **body}, headers=headers)

    def beat(self, worker: str = "w1", *queues: str, role: str = "selfplay", **changes: Any) -> None:
        """One heartbeat, which lives for a minute."""
        self.bus.put(keys.beat(worker), encode(heartbeat(role, worker, queues=queues, **changes)), life_s=60)

    def pages(self, url: str) -> list[Any]:
        """All pages of a list, by the links of their answers."""
        pages: list[Any] = []
        while url:
            answer = self.http.get(url)
            assert answer.status_code == 200, answer.text
            pages.append(answer.json())
            url = answer.links.get("next", {}).get("url", "")
        return pages
