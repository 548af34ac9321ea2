"""The REST interface on its own thread: bound before anything else starts, so that a taken port is one clear line."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from azq.config import DaemonConfig
from azq.errors import AzqError, ConfigError

START_WITHIN_S = 15.0
STOP_WITHIN_S = 5.0


def bind(config: DaemonConfig) -> socket.socket:
    """A listening socket at the configured address; `ConfigError` when it is taken or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sends at once (TCP_NODELAY) only where the protocol is named
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        raise ConfigError(f"{config.host}:{config.port} {what}; stop the other process, or set daemon.port (0: any free one)") from None
    return listener


def check_tls(config: DaemonConfig) -> None:
    """Raises `ConfigError` naming the file at fault when certificate and key are set and cannot be served with."""
    if config.tls_certificate is None or config.tls_key is None:
        return
    for setting, path in (("tls_certificate", config.tls_certificate), ("tls_key", config.tls_key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"daemon.{setting}: {path} cannot be read ({error.strerror or error}); mend the path or its rights") from None
    try:  # an empty password, or a locked key would ask the terminal for one
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"daemon.tls_certificate {config.tls_certificate} and daemon.tls_key {config.tls_key} cannot be used ({reason}); "
            "both are PEM files that belong together, the key without a password"
        ) from None


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Where the interface answers."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class Server:
    """uvicorn in a thread; signals stay with the main thread."""

    def __init__(self, app: FastAPI, listener: socket.socket, *, certificate: Path | None = None, key: Path | None = None) -> None:
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(settings)
        self._listener = listener
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, name="rest", daemon=True)

    def start(self) -> None:
        """Returns once it listens; `AzqError` when it does not get that far."""
        self._thread.start()
        deadline = time.monotonic() + START_WITHIN_S
        waiting = threading.Event()
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise AzqError("the REST interface did not start; see the lines above")
            waiting.wait(0.01)

    @property
    def alive(self) -> bool:
        """False once the thread died."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Lets open requests end, for a while."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_WITHIN_S)
        self._listener.close()
