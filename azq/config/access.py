"""Who reaches the REST interface: never other machines without a token, nor in the clear unless that is said, and its own user always.

Where no token is set that may do everything the daemon makes one, in its home, for that folder's user alone.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import socket
import ssl
import stat
from pathlib import Path

from pydantic import SecretStr

from azq.config.host import DaemonConfig, ListenConfig
from azq.config.loading import Config
from azq.errors import ConfigError
from azq.files import publish_file

TOKEN_FILE = ".token"
_TOKEN = re.compile(r"[!-~]{16,256}")


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_this_host(host: str) -> bool:
    """True for this machine's name and addresses as well, without a look at any name server."""
    own = socket.gethostname().lower()
    if is_loopback(host) or host.lower() in (own, own.partition(".")[0]):
        return True
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: from itself alone an address is reached from that address
            return bool(probe.getsockname()[0] == host)
    except (ValueError, OSError):
        return False


def check_binding(config: DaemonConfig) -> None:
    """Raises `ConfigError` when the interface would be open to other machines without a token."""
    tokens = (config.token, *(entry.token for entry in config.tokens.values()))
    if not is_loopback(config.host) and not any(token.get_secret_value() for token in tokens):
        raise ConfigError(
            f"daemon.host = {config.host!r} is reachable from other machines: set daemon.token (AZQ_DAEMON__TOKEN), or bind 127.0.0.1"
        )


def check_tls(config: ListenConfig, section: str = "daemon") -> None:
    """Raises `ConfigError` where other machines would have to speak in the clear, and, naming the file, where TLS cannot be served."""
    if config.tls_certificate is None or config.tls_key is None:
        if not is_loopback(config.host) and not config.plaintext:
            raise ConfigError(
                f"{section}.host = {config.host!r} would show tokens to the network: "
                f"set {section}.tls_certificate and {section}.tls_key "
                f"(those of embedded brokers are in HOME/.broker/tls), or {section}.plaintext = true where something else encrypts"
            )
        return
    for setting, path in (("tls_certificate", config.tls_certificate), ("tls_key", config.tls_key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{section}.{setting}: {path} cannot be read ({error.strerror or error}); mend the path or its rights"
            ) from None
    try:  # an empty password, or a locked key would ask the terminal for one
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"{section}.tls_certificate {config.tls_certificate} and {section}.tls_key {config.tls_key} cannot be used ({reason}); "
            "both are PEM files that belong together, the key without a password"
        ) from None


def has_operator(config: DaemonConfig) -> bool:
    """Whether the settings name a token that may do everything; one for Grafana alone leaves the host's own user without."""
    return bool(config.token.get_secret_value()) or any(entry.scope == "operate" for entry in config.tokens.values())


def with_own_token(config: Config, *, make: bool = False) -> Config:
    """The same settings with the home's token where none is set that may do everything; without `make` there may be none yet.

    Raises `ConfigError` where it cannot be read, written or trusted.
    """
    if has_operator(config.daemon):
        return config
    token = read_token(config.home) or (_make_token(config.home) if make else "")
    return config.model_copy(update={"daemon": config.daemon.model_copy(update={"token": SecretStr(token)})})


def read_token(home: Path) -> str:
    """The token of a home, empty where there is none. Raises `ConfigError` where others may read it too, or it is none."""
    path = home / TOKEN_FILE
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(1024).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError:
        raise ConfigError(
            f"{path} is another user's: run as that user, or set daemon.token (AZQ_DAEMON__TOKEN) to a token you have"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); delete it, and the daemon makes another at its next start") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path} is open to other users ({stat.filemode(mode)}): delete it and restart the daemon, for they may know it")
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"{path} holds no token; delete it, and the daemon makes another at its next start")
    return token


def _make_token(home: Path) -> str:
    """A new token, written whole; another process that was faster decides."""
    fresh = home / f"{TOKEN_FILE}.{secrets.token_hex(8)}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        publish_file(fresh, f"{secrets.token_urlsafe(18)}\n".encode(), 0o600)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, home / TOKEN_FILE)
    except OSError as error:
        raise ConfigError(
            f"{home / TOKEN_FILE} cannot be written ({error.strerror or error}); mend the folder, or set daemon.token"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
    return read_token(home)
