"""Who may ask, and for what: bearer tokens with scopes, which each route declares (`dependencies=[READ]`); and from which pages.

A browser sends what any page tells it to, from inside the operator's network and unseen; it also says so. Sec-Fetch-Site is believed
where it is sent (browsers keep pages from setting it), else Origin must be this host; curl and `azq.client` send neither. Forms,
which older browsers send without either, can have no JSON content type.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.datastructures import Headers

from azq.config import DaemonConfig
from azq.errors import AccessDenied


class Scope(StrEnum):
    """What a route asks of a token: operate includes read, read includes worker."""

    WORKER = "worker"  # what a machine that joins must know
    READ = "read"  # everything there is to see
    OPERATE = "operate"  # everything


_ORDER = tuple(Scope)  # each includes those before it


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: the name of a token in the settings, never the token."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """True when this token's scope includes the one that is needed."""
        return _ORDER.index(scope) <= _ORDER.index(self.scope)


LOCAL = Identity("local", Scope.OPERATE)  # where no token is set, this machine may do everything


@dataclass(frozen=True, slots=True)
class Keyring:
    """All tokens of the settings with the identity that each one proves."""

    entries: tuple[tuple[Identity, bytes], ...]

    @classmethod
    def of(cls, config: DaemonConfig) -> Keyring:
        """From `daemon.token` and `daemon.tokens`."""
        first = [(Identity("daemon.token", Scope.OPERATE), config.token)]
        named = [(Identity(name, Scope(entry.scope)), entry.token) for name, entry in config.tokens.items()]
        return cls(tuple((who, secret.get_secret_value().encode()) for who, secret in [*first, *named] if secret.get_secret_value()))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def identify(self, authorization: str) -> Identity | None:
        """Who the header proves to be asking; takes the same time for every wrong token, as every entry is compared."""
        scheme, _, sent = authorization.partition(" ")
        offered = sent.strip().encode()
        proven = [who for who, token in self.entries if hmac.compare_digest(offered, token)]
        return proven[0] if proven and scheme.lower() == "bearer" else None


IDENTITY = "azq.identity"  # where the guard leaves who asks, in the ASGI scope

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="`daemon.token`, or one of `daemon.tokens` whose scope (worker < read < operate) includes the one named here",
)


async def _allowed(needs: SecurityScopes, request: Request, _: Annotated[object, Security(_bearer)]) -> None:
    identity: Identity = request.scope[IDENTITY]
    for needed in needs.scopes:
        if not identity.may(Scope(needed)):
            raise AccessDenied(f"token {identity.name!r} has scope {identity.scope}, this needs scope {needed}; ask with another token")


WORKER = Security(_allowed, scopes=[Scope.WORKER.value])
READ = Security(_allowed, scopes=[Scope.READ.value])
OPERATE = Security(_allowed, scopes=[Scope.OPERATE.value])


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
JSON = "application/json"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def why_foreign(method: str, headers: Headers) -> str:
    """Why a request is that of another site's page; empty where it is not."""
    if method in SAFE_METHODS:
        return ""
    if site := headers.get("sec-fetch-site"):
        return "" if site in OWN_SITES else f"a page of another site asks for this ({site}); use this daemon's own dashboard, or curl"
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is None or origin.lower() in (f"http://{host}", f"https://{host}"):
        return ""
    return "a page of another origin asks for this; use this daemon's own dashboard, or let the proxy before it pass on the Host header"


def why_no_json(method: str, headers: Headers) -> str:
    """Why a request's body cannot be taken for JSON that its sender meant to send; empty where it can, or there is none."""
    if method in SAFE_METHODS:
        return ""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "")
    if (not kind and not has_body) or kind.partition(";")[0].strip().lower() == JSON:
        return ""
    return f"a body must be JSON: send `Content-Type: {JSON}`, or no body and no content type"


def forwarding(headers: Headers) -> str:
    """The header by which a proxy says that it passes on what others ask; empty where none does."""
    return next((name for name in FORWARDED if name in headers), "")
