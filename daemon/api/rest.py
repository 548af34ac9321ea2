"""The REST interface: uvicorn in a thread, in front of a daemon's core. Loaded after the first tick: its libraries take their time."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Iterator
from functools import partial

import redis
from starlette.types import ASGIApp

from azq import games, logs, parts
from azq.config import BrokerConfig, Config, DaemonConfig, RunSections
from azq.inference.ask.stream import open_stream
from azq.process.webserver import BoundedListener, WebServer, url_of
from azq.search.evaluator import Evaluator
from azq.status.brokers import open_planes
from azq.store import open_run_store
from azq.wire.connect import open_client
from azq.wire.messages import RunRecord
from daemon.api.app import create_app
from daemon.api.services import Services, guesses
from daemon.serve.loop import Loop

STOP_WITHIN_S = 5.0
PROBE_TIMEOUT_S = 1.0  # a scrape must not wait for a data plane that hangs

log = logs.get(__name__)


@contextlib.contextmanager
def serving(config: Config, client: redis.Redis, loop: Loop, listener: BoundedListener) -> Iterator[WebServer]:
    """Serves on a bound socket while entered; raises `AzqError` when it does not get that far."""
    services = services_of(config, client, loop)
    app = create_app(services, [module.make_router(config, client) for module in parts.extensions("routes")])
    server = rest_server(app, listener, config.daemon)
    url, token = url_of(listener, tls=config.daemon.tls_certificate is not None), config.daemon.token.get_secret_value()
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


def rest_server(app: ASGIApp, listener: BoundedListener, config: DaemonConfig) -> WebServer:
    """The REST interface behind its listener."""
    return WebServer(app, listener, "the REST interface", config, stop_within_s=STOP_WITHIN_S, ws="none", lifespan="off")


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
    return open_stream(broker, record.run, game, f"moves:{socket.gethostname()}:{os.getpid()}:{next(numbers)}")
