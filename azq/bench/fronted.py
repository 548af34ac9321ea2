"""The brokers of a benchmark, reached as this machine's own processes do, or through their TLS fronts as other machines do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from azq.config import Config
from azq.config.addresses import trusting
from azq.errors import BrokerUnavailable
from azq.host.brokers import Brokers, with_urls
from azq.host.fronts import Listen, children
from azq.process.supervisor import Supervisor
from azq.wire.connect import connect

UP_WITHIN_S = 30.0


def listening(tls: bool) -> Listen | None:
    """Where the fronts of a benchmark listen: ports that were free a moment ago."""
    if not tls:
        return None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return Listen("127.0.0.1", probe.getsockname()[1])


@contextlib.contextmanager
def reached(brokers: Brokers, config: Config, folder: Path) -> Iterator[tuple[Config, Mapping[str, int]]]:
    """Settings with the addresses to use, and the fronts' processes by name. Raises `BrokerUnavailable` where a front does not come up."""
    applied, supervisor = brokers.apply(config), Supervisor()
    if not brokers.fronts:
        yield applied, {}
        return
    try:
        for spec in children(brokers.fronts, folder):
            supervisor.start(spec)
        urls = [_through(url, plan.address, plan.certificate) for url, plan in zip(_own(applied), brokers.fronts, strict=True)]
        for url in urls:
            _wait(url)
        yield with_urls(applied, *urls), {name: child.process.pid for name, child in supervisor.children.items() if child.process}
    finally:
        supervisor.stop(tuple(supervisor.children), threading.Event().wait)


def _own(config: Config) -> tuple[str, ...]:
    return (config.broker.control_url, *config.broker.data_planes)


def _through(url: str, address: str, certificate: Path) -> str:
    login = urlsplit(url).netloc.rpartition("@")[0]
    return trusting(f"rediss://{login}@{address}/0", str(certificate))


def _wait(url: str) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            connect(url).close()
        except BrokerUnavailable:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.05)
        else:
            return
