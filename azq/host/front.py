"""`azq front`: the process that takes TLS for one broker of this host, until a signal."""

from __future__ import annotations

import contextlib
import resource
from functools import partial
from pathlib import Path

from azq import logs
from azq.bus.front import MAX_CLIENTS, Front, listen, serve
from azq.errors import ConfigError, ExitCode
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, WATCHDOG, notify

DESCRIPTORS = 2 * MAX_CLIENTS + 100

log = logs.get(__name__)


def main(address: str, server: Path, certificate: Path, key: Path) -> int:
    """Serves `HOST:PORT`; returns an exit code. Raises `ConfigError` for an address or files that cannot be used."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ConfigError(f"--listen {address!r} is not HOST:PORT")
    _raise_limit()
    with Interrupts() as stop, contextlib.closing(Front(listen(host.strip("[]"), int(port)), server, certificate, key)) as front:
        log.info("listening", address=address, server=str(server))
        notify(READY)
        serve(front, partial(notify, WATCHDOG), stop.is_set)
    return int(ExitCode.OK)


def _raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
