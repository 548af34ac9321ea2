"""What a broker's address carries besides the place: user and password, and what its certificate is verified with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

CA_OPTION = "ssl_ca_certs"
TLS_SCHEME = "rediss"


def trusting(url: str, anchors: str) -> str:
    """A `rediss://` address that is verified with a PEM file; other addresses as they are, and one that names a file already."""
    parts = urlsplit(url)
    if parts.scheme != TLS_SCHEME or CA_OPTION in parts.query:
        return url
    options = [*parse_qsl(parts.query, keep_blank_values=True), (CA_OPTION, anchors)]
    return urlunsplit(parts._replace(query=urlencode(options, safe="/")))


def plain(url: str) -> str:
    """An address without what `trusting` adds, user and password included."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="")) if parts.scheme == TLS_SCHEME else url


def with_user(url: str, user: str, password: str) -> str:
    """An address with this user and password in place of its own."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"))


def data_settings(urls: Sequence[str], prefix: str = "") -> dict[str, str | tuple[str, ...]]:
    """The settings that name data planes: one has a key of its own."""
    return {f"{prefix}data_url": urls[0]} if len(urls) == 1 else {f"{prefix}data_urls": tuple(urls)}


def password_in(url: str) -> str:
    """The password in an address; empty where there is none."""
    return unquote(urlsplit(url).password or "")
