"""The token of a joined machine: who it is at the brokers, and the ways to hand that over without showing it to others.

Its text is `<user>.<secret>.<fingerprint>`; a text without dots is a password of the brokers' default user.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config
from azq.config.host import TLS_SCHEME, trusting, with_user
from azq.errors import ConfigError
from azq.host import brokers
from azq.host.fronts import own_fingerprint
from azq.host.users import NO_USERS, knows_roles, machines_of
from azq.wire import keys, tls
from azq.wire.acl import machine_user
from azq.wire.codec import decode
from azq.wire.connect import SCHEMES, address
from azq.wire.kinds import Kind
from azq.wire.messages import Fleet

VARIABLE = "AZQ_JOIN_TOKEN"
ANYWHERE = ("0.0.0.0", "::", "*")
_FORM = re.compile(r"([a-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class Token:
    """A password, and whether other users of this machine could read it; empty: none was given."""

    text: str = ""
    exposed: bool = False
    user: str = ""  # of the brokers; empty: the default one
    fingerprint: str = ""  # SHA-256 of the brokers' certificate (DER), in lower-case hex; empty where there is no TLS

    def __str__(self) -> str:
        """What is handed over; a secret."""
        return f"{self.user}.{self.text}.{self.fingerprint}" if self.user or self.fingerprint else self.text


def parse_token(text: str, *, exposed: bool = False) -> Token:
    """A token from its text. Raises `ConfigError`, which does not repeat it, for one that was damaged on its way."""
    if "." not in text:
        return Token(text, exposed)
    if not (match := _FORM.fullmatch(text)):
        raise ConfigError("the token is no <user>.<secret>.<fingerprint>; copy it whole from what `azq join-token` printed")
    user, secret, fingerprint = match.groups()
    return Token(secret, exposed, user, fingerprint or "")


def read_token(given: str, file: Path | None, environment: MutableMapping[str, str] = os.environ) -> Token:
    """The token from `--token`, `--token-file` (`-`: standard input) or `AZQ_JOIN_TOKEN`, which no child process inherits.

    Raises `ConfigError` for two of them, and for a file that cannot be read or holds nothing.
    """
    inherited = environment.pop(VARIABLE, "")
    if given and file is not None:
        raise ConfigError("--token and --token-file are both given; choose one")
    if given:
        return parse_token(given, exposed=True)
    if file is None:
        return parse_token(inherited)
    try:
        text = (sys.stdin.readline() if str(file) == "-" else file.read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error}; name a file that holds the token alone") from None
    if not text or len(text.split()) != 1:
        raise ConfigError(f"--token-file {file} holds {'more than one word' if text else 'nothing'}; it holds the token alone")
    return parse_token(text)


def ask_token() -> Token:
    """The token as typed at the terminal; empty without one."""
    if sys.stdin.isatty():
        with contextlib.suppress(EOFError):
            return parse_token(getpass.getpass("token (azq join-token on the first machine prints it): ").strip())
    return Token()


def has_password(url: str) -> bool:
    """Whether a broker URL carries a password; `ConfigError` for one that does not parse."""
    return bool(_split(url).password)


def with_login(url: str, token: Token) -> str:
    """The URL with a token's user and password; those that it carries already stay. `ConfigError` where the two differ."""
    own = login_of(url)
    if own.text and token.text and own != Token(token.text, user=token.user):
        raise ConfigError(f"{address(url)} carries another user or password than the token; leave one of them out")
    if own.text or not token.text:
        return url
    return with_user(url, token.user or own.user, token.text)


def login_of(url: str) -> Token:
    """User and password in a broker URL; empty where there are none."""
    parts = _split(url)
    return Token(unquote(parts.password or ""), user=unquote(parts.username or ""))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"broker URL {address(url)} does not parse: {error}; write redis://host:port/0") from None
    if parts.scheme not in SCHEMES or not (parts.hostname or parts.path):
        raise ConfigError(f"broker URL {address(url)} is none of redis(s)://host:port/0; `azq join-token` on the first machine prints it")
    return parts


@dataclass(frozen=True, slots=True)
class Invitee:
    """Whom a token is for; an empty name: one is made up."""

    name: str = ""
    roles: tuple[str, ...] = (*Kind, "inference")
    days: float = 30.0


def invitation(config: Config, guest: Invitee) -> dict[str, Any]:
    """The command that joins this machine's fleet, and a token for one machine, which is let in by this.

    Where the brokers keep no users the token is their password, for any holder. Raises `ConfigError` when the brokers are out of other
    machines' reach, `BrokerUnavailable` when they are away, `StateConflict` for a name that is taken.
    """
    resolved, client = brokers.open_control(config)
    with contextlib.closing(client):
        frame = RedisBus(client).get(keys.FLEET)
    own = resolved.broker.public_control_url or resolved.broker.control_url
    url = decode(frame, Fleet).control_url if frame else "" if own.startswith("unix://") else address(own)
    if not url:
        raise ConfigError(
            "the brokers listen on unix sockets only, which no other machine reaches; use `azq up --listen HOST`, "
            "or let them listen and set broker.public_control_url and broker.public_data_url"
        )
    parts = _split(url)
    if (parts.hostname or "") in ANYWHERE:
        url = url.replace(str(parts.hostname), socket.gethostname(), 1)
    return {"command": f"azq join {url}", **_let_in(resolved, guest, own_fingerprint(config, brokers.certificate_file(config.home), url))}


def _let_in(config: Config, guest: Invitee, fingerprint: str) -> dict[str, Any]:
    if not knows_roles(config):
        login = login_of(config.broker.control_url)
        user = login.user or ("default" if fingerprint else "")
        return {"token": str(replace(login, user=user, fingerprint=fingerprint)), "warning": NO_USERS}
    name = guest.name or f"box-{secrets.token_hex(3)}"
    with machines_of(config) as machines:
        machine, password = machines.let_in(name, guest.roles, guest.days, now_ms())
    return {
        "token": str(Token(password, user=machine_user(name), fingerprint=fingerprint)),
        "name": name,
        "roles": list(machine.roles),
        "expires_ms": machine.expires_ms,
    }


@dataclass(frozen=True, slots=True)
class Trust:
    """`pem`: what is kept beside the settings; empty where the system's authorities, or none, vouch for the brokers."""

    pem: str = ""
    file: Path | None = None  # where it lies while the fleet is looked at

    def of(self, url: str) -> str:
        return url if self.file is None else trusting(url, str(self.file))


@contextlib.contextmanager
def settled(url: str, token: Token, authority: Path | None) -> Iterator[Trust]:
    """The trust that a token's fingerprint, or else an operator's PEM file, gives.

    Raises `ConfigError` where the two or the address disagree, `BrokerRefused` for a server with another certificate.
    """
    secured = url.startswith(f"{TLS_SCHEME}://")
    if not secured and (token.fingerprint or authority):
        raise ConfigError(f"{address(url)} is plaintext, which would show the token on the way: these brokers speak TLS, write rediss://")
    if token.fingerprint and authority:
        raise ConfigError("the token names the brokers' certificate by its fingerprint; leave --tls-ca out")
    pem = _pem(url, token, authority) if secured else ""
    if not pem:
        yield Trust()
        return
    with tempfile.TemporaryDirectory(prefix="azq-join-") as folder:
        file = Path(folder) / "broker.pem"
        file.write_text(pem, "ascii")
        tls.context_for(str(file))
        yield Trust(pem, file)


def _pem(url: str, token: Token, authority: Path | None) -> str:
    if token.fingerprint:
        return tls.fetch_certificate(url, token.fingerprint)
    try:
        return authority.read_text("ascii") if authority else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--tls-ca {authority} cannot be read ({error}); name a PEM file") from None
