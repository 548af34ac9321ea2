"""Where the REST interface listens: bound before anything else starts, so that a taken port or a bad file is one clear line."""

from __future__ import annotations

import errno
import socket
import ssl

from azq.config import DaemonConfig
from azq.errors import ConfigError
from daemon.api.auth import is_loopback
from daemon.door import Door


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


def check_tls(config: DaemonConfig) -> None:
    """Raises `ConfigError` where other machines would have to speak in the clear, and, naming the file, where TLS cannot be served."""
    if config.tls_certificate is None or config.tls_key is None:
        if not is_loopback(config.host) and not config.plaintext:
            raise ConfigError(
                f"daemon.host = {config.host!r} would show tokens to everybody on the way: set daemon.tls_certificate and daemon.tls_key "
                "(those of embedded brokers are in HOME/.broker/tls), or daemon.plaintext = true where something else encrypts"
            )
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
