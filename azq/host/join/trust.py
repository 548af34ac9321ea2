"""What a machine that joins verifies the brokers with, settled before anything secret is sent."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from azq.config.addresses import TLS_SCHEME, trusting
from azq.errors import ConfigError
from azq.host.join.token import Token
from azq.wire import tls
from azq.wire.connect import address


@dataclass(frozen=True, slots=True)
class Trust:
    """`pem`: what is kept beside the settings; empty where the system's authorities, or nobody, vouch for the brokers."""

    pem: str = ""
    file: Path | None = None  # where it lies while the fleet is looked at

    def of(self, url: str) -> str:
        """A broker's address that is verified so."""
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
