"""ContributorStore over REST."""

from __future__ import annotations

from typing import Annotated

import redis
from fastapi import APIRouter, Path

from azq.config import Config
from azq.parts.volunteers.contributor_store import ContributorFigures, ContributorStore
from daemon.api.access import READ


def make_router(config: Config, client: redis.Redis) -> APIRouter:
    """The routes, over the control plane of `client`."""
    router, contributors = APIRouter(prefix="/v1/volunteers", tags=["workers"]), ContributorStore(client, config.gateway)

    @router.get("/{contributor}", dependencies=[READ])
    def get_volunteer(contributor: Annotated[str, Path(max_length=64, description="Its id, or its name.")]) -> ContributorFigures:
        """A contributor's standing and figures: games that count, plies searched again, what it and its address did with hand-outs."""
        return contributors.figures_of(contributors.find(contributor), contributors.sums("ever"), address=True)

    return router
