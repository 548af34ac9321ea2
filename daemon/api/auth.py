"""Who may ask: a bearer token, needed wherever other machines reach the daemon. Pure."""

from __future__ import annotations

import hmac
import ipaddress

from azq.config import DaemonConfig
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
    if not is_loopback(config.host) and not config.token.get_secret_value():
        raise ConfigError(
            f"daemon.host = {config.host!r} is reachable from other machines: set daemon.token (AZQ_DAEMON__TOKEN), or bind 127.0.0.1"
        )


def may_pass(token: str, authorization: str) -> bool:
    """True when the header carries the token; takes the same time for every wrong one."""
    scheme, _, sent = authorization.partition(" ")
    return hmac.compare_digest(sent.strip().encode(), token.encode()) and scheme.lower() == "bearer"
