"""The REST interface: uvicorn in a thread, in front of a daemon's core. Loaded after the first tick: its libraries take their time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h11
import redis
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from azq import games, logs
from azq.config import BrokerConfig, Config, RunSections
from azq.inference.ask.stream import open_stream
from azq.process.webserver import OWN_WORD, WebServer, url_of
from azq.search.evaluator import Evaluator
from azq.status.brokers import open_planes
from azq.store import open_run_store
from azq.wire.connect import open_client
from azq.wire.messages import RunRecord
from daemon.api.app import create_app
from daemon.api.services import Services, guesses
from daemon.serve.door import BACKLOG, Door, Phase
from daemon.serve.loop import Loop

STOP_WITHIN_S = 5.0
SWEEP_S = 1
PROBE_TIMEOUT_S = 1.0  # a scrape must not wait for a data plane that hangs

log = logs.get(__name__)


@contextlib.contextmanager
def serving(config: Config, client: redis.Redis, loop: Loop, listener: Door) -> Iterator[Server]:
    """Serves on a bound socket while entered; raises `AzqError` when it does not get that far."""
    certificate, key = config.daemon.tls_certificate, config.daemon.tls_key
    services = services_of(config, client, loop)
    app = create_app(services)
    server = Server(app, listener, certificate=certificate, key=key)
    url, token = url_of(listener, tls=certificate is not None), config.daemon.token.get_secret_value()
    server.start()
    log.info("listening", url=url)
    if sys.stdout.isatty():  # never into a log
        sys.stdout.write(f"dashboard {url}/#token={token}\n" if token else f"dashboard {url}\n")
    try:
        yield server
    finally:
        services.streams.close()
        app.state.turns.close()
        server.stop()
        app.state.auditor.close()


class Conversation(H11Protocol):
    """uvicorn's protocol over a connection that came through a door."""

    def __init__(self, door: Door, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._visitor = self._door.visitors.get(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._tell()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell()

    def _tell(self) -> None:
        if self._visitor is not None:
            self._visitor.enter(self._phase())

    def _phase(self) -> Phase:
        if self.conn.their_state is h11.SEND_BODY:
            return Phase.BODY
        answering = self.cycle is not None and not self.cycle.response_complete
        return Phase.ANSWER if answering else Phase.HEADERS


class Server(WebServer):
    """The REST interface behind its door."""

    def __init__(self, app: FastAPI, listener: Door, *, certificate: Path | None = None, key: Path | None = None) -> None:
        settings = uvicorn.Config(
            app,
            http=partial(Conversation, listener),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",  # which accepts through the listener's own method
            backlog=BACKLOG,
            callback_notify=listener.sweep,
            timeout_notify=SWEEP_S,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            **OWN_WORD,
            timeout_graceful_shutdown=2,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        super().__init__(settings, listener, "the REST interface", stop_within_s=STOP_WITHIN_S)
        self._listener = listener

    def stop(self) -> None:
        """Lets open requests end, for a while."""
        super().stop()
        self._listener.close()


def services_of(config: Config, client: redis.Redis, loop: Loop) -> Services:
    """What the routes work with."""
    data = [open_client(url, timeout_s=PROBE_TIMEOUT_S) for url in config.broker.data_planes]
    return Services(
        loop.hands.ledger,
        loop.bus,
        config.daemon,
        loop.health,
        config.home,
        games.names,
        open_planes(client, data),
        store_of=partial(open_run_store, config.store, client=client),
        beats=loop.observer.beats,
        evaluator_of=partial(_evaluator, config.broker, itertools.count(1)),
    )


def _evaluator(broker: BrokerConfig, numbers: Iterator[int], record: RunRecord, sections: RunSections, game: games.Game) -> Evaluator:
    """The run's networks, behind the inference workers. Raises `BrokerError`."""
    if sections.selfplay.evaluator == "uniform":
        return guesses(record, sections, game)
    return open_stream(broker, record.run, sections, game, f"moves:{socket.gethostname()}:{os.getpid()}:{next(numbers)}")
