"""The owner's order that a contributor's games leave a run's window, and the learner's word on what that changed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis

from azq.errors import EvaluationTimeout
from azq.ledger import Ledger
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import BROWSER_PREFIX


def purge(client: redis.Redis, run: str, contributor: str, until_ms: int, wait_s: float) -> PurgedGames | None:
    """Orders out the games finished by then; what the learner says of it, None where none did in time. Raises `NotFound`, `BrokerError`."""
    Ledger(client).run(run)
    worker = f"{BROWSER_PREFIX}{contributor}"

    def order(pipe: Any) -> None:
        before: Any = client.get(keys.purges(run))
        orders = decode(before, PurgeOrders).until_ms if before else {}
        pipe.multi()
        pipe.set(keys.purges(run), encode(PurgeOrders(orders | {worker: until_ms})))

    def answer() -> PurgedGames | None:
        said: Any = client.get(keys.purged(run, worker))
        found = decode(said, PurgedGames) if said else None
        return found if found and found.until_ms == until_ms else None

    with translate(client):
        client.transaction(order, keys.purges(run))
        with suppress(EvaluationTimeout):
            return until(answer, "", wait_s)
    return None
