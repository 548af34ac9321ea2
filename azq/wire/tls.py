"""TLS to a broker, from the client's side: every `rediss://` connection is verified, against one file or the system's authorities.

A URL carries the file of `broker.tls_ca` as `?ssl_ca_certs=FILE`, so that a URL is all it takes to connect.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from urllib.parse import parse_qsl, urlsplit

import redis

from azq.config.host import CA_OPTION
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError

DEFAULT_PORT = 6379
FETCH_TIMEOUT_S = 5.0


def context_for(anchors: str | None) -> ssl.SSLContext:
    """A verifying client's context that trusts `anchors` (PEM file) alone, or the system's authorities where it is None.

    A file of nothing but a server's own certificate pins that server: its name proves nothing more and is not asked for.
    Raises `ConfigError` for a file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=anchors)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"broker.tls_ca {anchors} holds no certificate that can be read ({error}); `azq join` writes one, or name the server's PEM file"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if anchors is not None and not context.cert_store_stats()["x509_ca"]:
        context.check_hostname = False
    return context


def pins(file: str) -> bool:
    """Whether a PEM file is one server's own certificate. Raises `ConfigError` for one that cannot be used."""
    return context_for(file).cert_store_stats() == {"x509": 1, "x509_ca": 0, "crl": 0}


class VerifiedConnection(redis.SSLConnection):
    """redis-py's TLS connection with `context_for`: redis-py itself would trust the system's authorities besides the file."""

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        return context_for(self.ca_certs).wrap_socket(sock, server_hostname=self.host)


def anchors_of(url: str) -> str | None:
    """The PEM file that a `rediss://` URL names. Raises `ConfigError` for options that would weaken the check."""
    options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    anchors = options.pop(CA_OPTION, None)
    if weak := [name for name in options if name.startswith("ssl_")]:
        raise ConfigError(
            f"broker URL has the option {weak[0]}: certificates are always verified; name the server's PEM file in broker.tls_ca"
        )
    return anchors or None


def fingerprint(pem: str) -> str:
    """SHA-256 of the first certificate in a PEM text, over its DER form, as 64 lower-case hex digits."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) :])).hexdigest()


def fetch_certificate(url: str, expected: str) -> str:
    """The certificate (PEM) of the server at a `rediss://` URL, if its fingerprint is the expected one; nothing is sent to it.

    Raises `BrokerRefused` where it is another, `BrokerUnavailable` where no server speaks TLS there.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORT
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE  # the comparison below verifies
    try:
        with (
            socket.create_connection((host, port), timeout=FETCH_TIMEOUT_S) as plain,
            unverified.wrap_socket(plain, server_hostname=host) as secured,
        ):
            der = secured.getpeercert(binary_form=True) or b""
    except ssl.SSLError as error:
        raise BrokerUnavailable(f"broker at {host}:{port} does not speak TLS ({reason_of(error)}); is the address right?") from None
    except OSError as error:
        raise BrokerUnavailable(f"no broker at {host}:{port} ({error.strerror or error}); is it started, and does it speak TLS?") from None
    if not hmac.compare_digest(hashlib.sha256(der).hexdigest(), expected):
        raise BrokerRefused(
            f"broker at {host}:{port} shows another certificate than the token names, so the token was not sent: "
            "the token is of another fleet or of before a new certificate (`azq join-token` prints today's), or somebody stands in between"
        )
    return ssl.DER_cert_to_PEM_cert(der)


def reason_of(error: ssl.SSLError) -> str:
    """What OpenSSL says, in words."""
    return str(getattr(error, "verify_message", None) or getattr(error, "reason", None) or error).lower().replace("_", " ")
