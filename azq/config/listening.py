"""Whether the REST interface may listen as it is set to: never to other machines without a token, nor in the clear unless that is said."""

from __future__ import annotations

import ipaddress
import ssl

from azq.config.host import DaemonConfig
from azq.errors import ConfigError


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(config: DaemonConfig) -> None:
    """Raises `ConfigError` when the interface would be open to other machines without a token."""
    tokens = (config.token, *(entry.token for entry in config.tokens.values()))
    if not is_loopback(config.host) and not any(token.get_secret_value() for token in tokens):
        raise ConfigError(
            f"daemon.host = {config.host!r} is reachable from other machines: set daemon.token (AZQ_DAEMON__TOKEN), or bind 127.0.0.1"
        )


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
