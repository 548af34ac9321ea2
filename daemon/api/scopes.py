"""What each route asks of a token, declared on the route (`dependencies=[READ]`) and so told by `/docs` and the OpenAPI schema."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPBearer, SecurityScopes

from azq.errors import AccessDenied
from daemon.api.auth import Identity, Scope

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
