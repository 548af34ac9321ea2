"""Where the REST interface listens: bound before anything else starts, so that a taken port or a bad file is one clear line."""

from __future__ import annotations

import errno
import socket

from azq.config import DaemonConfig
from azq.errors import ConfigError
from daemon.serve.door import Door


def bind(config: DaemonConfig) -> Door:
    """A socket to listen with at the configured address; `ConfigError` when it is taken or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        listener = Door(family, kind, protocol)  # asyncio sends at once (TCP_NODELAY) only where the protocol is named
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


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Where the interface answers."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
