"""The TLS fronts of embedded brokers, one a broker: children of `azq up`, which other machines connect to in the server's place."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from azq import logs
from azq.bus.tls_proxy import MAX_CLIENTS, TlsProxy, listen, serve
from azq.config import Config
from azq.config.host import TLS_SCHEME
from azq.errors import ConfigError, ExitCode
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, WATCHDOG, notify
from azq.process.start import AZQ, bare_environment
from azq.process.supervisor import ChildSpec
from azq.wire import tls

LISTEN_PORT = 6379
TLS_FOLDER = "tls"  # beside the servers' folders


@dataclass(frozen=True, slots=True)
class Listen:
    """Where other machines reach the control plane; each data plane has the port after the one before it."""

    host: str
    port: int
    plaintext: bool = False  # the servers listen there themselves, and everything can be read on the way

    def url(self, place: int) -> str:
        """The address of the plane at this place, control first."""
        return f"{'redis' if self.plaintext else TLS_SCHEME}://{self.host}:{self.port + place}/0"


@dataclass(frozen=True, slots=True)
class FrontPlan:
    """One front: the role of its broker, where it listens, where it leads, and what it shows."""

    role: str
    address: str
    server: Path
    certificate: Path
    key: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows `azq` on its command line."""
        files = ("--certificate", str(self.certificate), "--key", str(self.key))
        return ("front", "--listen", self.address, "--server", str(self.server), *files)


def free_port(count: int = 1) -> int:
    """A port of this machine without a listener a moment ago, nor at those after it, so many in all.

    It is below those that Linux gives to connections, any of which could take it before who asked for it does.
    """
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def parse_listen(text: str | None, plaintext: bool = False) -> Listen | None:
    """`192.168.0.5` or `first:6379` as host and port of the control plane; the data plane takes the port after it."""
    if not text:
        if plaintext:
            raise ConfigError("--plaintext says how other machines are listened to: give --listen HOST as well, or leave it out")
        return None
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(LISTEN_PORT))
    if not host or not re.fullmatch(r"[A-Za-z0-9.-]+", host) or not port.isdigit() or not 0 < int(port) < 65535:
        raise ConfigError(f"--listen {text!r} is not HOST or HOST:PORT; name an address of this machine that the others reach")
    return Listen(host, int(port), plaintext)


def children(plans: Iterable[FrontPlan], logs: Path) -> Iterator[ChildSpec]:
    for plan in plans:
        name = f"front-{plan.role}"
        yield ChildSpec(name, [*AZQ, *plan.arguments], logs / f"{name}.log", env=bare_environment())


def own_fingerprint(config: Config, made: Path, url: str) -> str:
    """The fingerprint that a token names for the brokers at `url`; empty where it names none.

    `made`: the certificate of embedded brokers. Others are known by `broker.tls_ca`, where that is one server's own certificate; an
    authority's is for the joining machine to name. Raises `ConfigError` where the file cannot be read.
    """
    file = config.broker.tls_ca if config.broker.control_url else made
    if not url.startswith(f"{TLS_SCHEME}://") or file is None or not tls.pins(str(file)):
        return ""
    try:
        return tls.fingerprint(file.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate {file} cannot be read ({error}); mend it, or delete its folder and start `azq up` again") from None


DESCRIPTORS = 2 * MAX_CLIENTS + 100

log = logs.get(__name__)


def main(address: str, server: Path, certificate: Path, key: Path) -> int:
    """Serves `HOST:PORT`; returns an exit code. Raises `ConfigError` for an address or files that cannot be used."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ConfigError(f"--listen {address!r} is not HOST:PORT")
    _raise_limit()
    with Interrupts() as stop, contextlib.closing(TlsProxy(listen(host.strip("[]"), int(port)), server, certificate, key)) as front:
        log.info("listening", address=address, server=str(server))
        notify(READY)
        serve(front, partial(notify, WATCHDOG), stop.is_set)
    return int(ExitCode.OK)


def _raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
