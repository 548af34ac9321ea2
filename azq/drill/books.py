"""Reads the ledger's account of a run's games out of the control plane."""

from __future__ import annotations

from typing import Any

import redis

from azq.drill.proof import Books
from azq.ledger import Ledger
from azq.wire import keys


def read_books(client: redis.Redis, run: str) -> Books:
    """All games by number; of one moment only where nobody holds a game meanwhile."""
    uids: Any = client.hkeys(keys.open_games(run))
    reasons: Any = client.hgetall(keys.abandoned(run))
    abandoned = {int(uid): bytes(reason).decode() for uid, reason in reasons.items()}
    return Books(Ledger(client).counts(run).opened, frozenset(map(int, uids)), abandoned)
