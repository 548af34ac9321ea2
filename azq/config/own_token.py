"""The token that a daemon makes for itself where none is set that may do everything: in its home, for that folder's user alone."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

from pydantic import SecretStr

from azq.config.host import DaemonConfig
from azq.config.loading import Config
from azq.errors import ConfigError

TOKEN_FILE = ".token"
_TOKEN = re.compile(r"[!-~]{16,256}")


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
        raise ConfigError(
            f"{path} is open to other users ({stat.filemode(mode)}): delete it and start the daemon anew, for they may know it"
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"{path} holds no token; delete it, and the daemon makes another at its next start")
    return token


def _make_token(home: Path) -> str:
    """A new token, written whole; another process that was faster decides."""
    fresh = ""
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix=".part-", dir=home)  # 0600
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(18) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh, home / TOKEN_FILE)
    except OSError as error:
        raise ConfigError(
            f"{home / TOKEN_FILE} cannot be written ({error.strerror or error}); mend the folder, or set daemon.token"
        ) from None
    finally:
        if fresh:
            os.unlink(fresh)
    return read_token(home)
