"""Where the upper layers get connections from; the code lies in `azq.wire.connect`, below the ledger, the queue and the store."""

from __future__ import annotations

import os
import threading

import redis

from azq import logs
from azq.errors import BrokerUnavailable
from azq.process.liveness import notify
from azq.wire.connect import address, address_of, connect, open_client, socket_timeout_s, translate

__all__ = ["address", "address_of", "connect", "connect_at_start", "open_client", "socket_timeout_s", "translate"]

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # between two tries; the last one for as long as it takes

log = logs.get(__name__)


def connect_at_start(url: str, *, timeout_s: float = 5.0) -> redis.Redis:
    """As `connect`; but under a service manager a broker that is away is waited for, however late it comes.

    Whole sites lose power: their machines boot before the broker does, and a service that ends each time may run out of starts, or
    spends the wait on loading Python. Without a service manager a person waits for an answer: `BrokerUnavailable` is raised at once.
    """
    tries = 0
    while True:
        try:
            return connect(url, timeout_s=timeout_s)
        except BrokerUnavailable as error:
            if not os.environ.get("NOTIFY_SOCKET"):
                raise
            pause_s = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            if not tries:
                log.warning("broker_away", reason=str(error), remedy="waits until it answers")
            # The start takes longer than the unit allows: this pause, the next try, and some room.
            notify(f"STATUS=waiting for the broker: {error}", f"EXTEND_TIMEOUT_USEC={round(1e6 * (pause_s + 2 * timeout_s + 30))}")
            threading.Event().wait(pause_s)
            tries += 1
