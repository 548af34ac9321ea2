"""The REST interface in front of a daemon's core. Loaded after the first tick: its libraries take their time."""

from __future__ import annotations

import contextlib
import sys
from functools import partial

from azq import games, logs
from azq.config import Config
from azq.status.brokers import open_planes
from azq.store import open_run_store
from azq.wire.connect import open_client
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.core import Core
from daemon.serve.door import Door
from daemon.serve.listener import url_of
from daemon.serve.server import Server

PROBE_TIMEOUT_S = 1.0  # a scrape must not wait for a data plane that hangs

log = logs.get(__name__)


class Rest(contextlib.AbstractContextManager["Rest"]):
    """Serves on a bound socket from entering to leaving; raises `AzqError` when it does not get that far."""

    def __init__(self, config: Config, core: Core, listener: Door) -> None:
        certificate, key = config.daemon.tls_certificate, config.daemon.tls_key
        self._services = services_of(config, core)
        self._app = create_app(self._services)
        self._server = Server(self._app, listener, certificate=certificate, key=key)
        self._url = url_of(listener, tls=certificate is not None)
        self._token = config.daemon.token.get_secret_value()

    def __enter__(self) -> Rest:
        self._server.start()
        log.info("listening", url=self._url)
        if sys.stdout.isatty():  # never into a log
            sys.stdout.write(f"dashboard {self._url}/#token={self._token}\n" if self._token else f"dashboard {self._url}\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._services.streams.close()
        self._server.stop()
        self._app.state.auditor.close()

    @property
    def alive(self) -> bool:
        """False once its thread died."""
        return self._server.alive


def services_of(config: Config, core: Core) -> Services:
    """What the routes work with."""
    data = [open_client(url, timeout_s=PROBE_TIMEOUT_S) for url in config.broker.data_planes]
    return Services(
        core.ledger,
        core.bus,
        config.daemon,
        core.health,
        config.home,
        games.names,
        open_planes(core.client, data),
        store_of=partial(open_run_store, config.store, client=core.client),
        beats=core.beats,
    )
