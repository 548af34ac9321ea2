"""This machine's ways to others: HTTP by the proxy that the environment names, and the network interface and address towards a host."""

from __future__ import annotations

import contextlib
import socket
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import psutil

from azq.config.access import is_this_host
from azq.errors import ConfigError
from azq.masking import masked


def open_web(url: str, *, timeout_s: float, trust: ssl.SSLContext | None = None) -> httpx2.Client:
    """A client for requests to `url`. Raises `ConfigError` where the environment names a proxy or certificates that cannot be used."""
    secure = urlsplit(url).scheme == "https"
    try:
        verify = trust or (True if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # no authorities, as none is asked
        if is_this_host(urlsplit(url).hostname or ""):
            return httpx2.Client(timeout=timeout_s, transport=httpx2.HTTPTransport(verify=verify))  # passes by what the environment names
        return httpx2.Client(timeout=timeout_s, verify=verify)
    except (OSError, ValueError, ImportError) as error:
        reason = masked(str(error))
        raise ConfigError(f"this environment's HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE cannot be used: {reason}") from None


def way_to(url: str) -> str:
    """` through the proxy ... (HTTP_PROXY)` where requests to `url` go through one; empty otherwise."""
    parts, proxies = urlsplit(url), getproxies()
    host, name = parts.hostname or "", parts.scheme if parts.scheme in proxies else "all"
    if name not in proxies or is_this_host(host) or proxy_bypass(host):
        return ""
    return f" through the proxy {masked(proxies[name])} ({name.upper()}_PROXY)"


_ANY_PORT = 9


def address_towards(host: str) -> str:
    """This machine's address on the way to a host, which may be itself; empty where there is no way."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, _ANY_PORT))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


def interface_towards(host: str) -> str:
    """The network interface by which a host, or this one itself, is reached; empty where unknown."""
    address = address_towards(host)
    interfaces = psutil.net_if_addrs() if address else {}
    return next((name for name, entries in interfaces.items() if any(entry.address == address for entry in entries)), "")
