"""What commands over REST need of this machine: where the daemon is by the settings, and files to write to."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from azq.client import Client
from azq.config import Config, DaemonConfig
from azq.config.listening import is_loopback
from azq.config.own_token import with_own_token
from azq.errors import ConfigError, StoreError
from azq.files import publish_file


def client_of(config: Config, url: str = "") -> Client:
    """A client of the daemon at `url`, or of the one that these settings describe, with their token, else the one that it made for itself.

    The latter is for the daemon of this home and so is sent to this machine alone.
    """
    here = not url or is_loopback(urlsplit(url).hostname or "")
    daemon = with_own_token(config).daemon if here else config.daemon
    return Client(url or url_of(daemon), daemon.token.get_secret_value(), trust=None if url else _trust(daemon))


def url_of(config: DaemonConfig) -> str:
    """Where a daemon with these settings answers on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"{'https' if config.tls_certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{config.port}"


def save(data: bytes, path: Path) -> int:
    """Writes a file whole or not at all; its size. Raises `StoreError`."""
    try:
        publish_file(path, data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}; choose another --to") from None
    return len(data)


def _trust(config: DaemonConfig) -> ssl.SSLContext | None:
    """The daemon's own certificate is trusted where these settings name it, be it signed by itself."""
    if config.tls_certificate is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(config.tls_certificate))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"daemon.tls_certificate {config.tls_certificate} cannot be read ({error}); mend it, or give --url") from None
