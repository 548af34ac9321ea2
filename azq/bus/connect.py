"""Where the upper layers get connections from; the code lies in `azq.wire.connect`, below the ledger, the queue and the store."""

from __future__ import annotations

import os
import threading

import redis

from azq import logs
from azq.config import BrokerConfig
from azq.errors import BrokerUnavailable, ConfigError
from azq.process.liveness import more_time, notify
from azq.waiting import Backoff
from azq.wire.connect import address, address_of, connect, open_client, socket_timeout_s, translate

__all__ = ["address", "address_of", "connect", "connect_at_start", "control_url_of", "open_client", "socket_timeout_s", "translate"]

BACKOFF = Backoff(0.2, 5.0)

log = logs.get(__name__)


def control_url_of(broker: BrokerConfig) -> str:
    """The address of the control plane; raises `ConfigError` where none is set."""
    if not broker.control_url:
        raise ConfigError("no broker: set broker.control_url (AZQ_BROKER__CONTROL_URL), or use `azq up`, which starts one")
    return broker.control_url


def connect_at_start(broker: BrokerConfig) -> redis.Redis:
    """As `connect` to the control plane; but under a service manager a broker that is away is waited for, however late it comes.

    Whole sites lose power: their machines boot before the broker does, and a service that ends each time may run out of starts, or
    spends the wait on loading Python. Without a service manager a person waits for an answer: `BrokerUnavailable` is raised at once.
    """
    url, timeout_s, failures = control_url_of(broker), broker.connect_timeout_s, 0
    while True:
        try:
            return connect(url, timeout_s=timeout_s)
        except BrokerUnavailable as error:
            if not os.environ.get("NOTIFY_SOCKET"):
                raise
            if not failures:
                log.warning("broker_away", reason=str(error), remedy="waits until it answers")
            failures += 1
            pause_s = BACKOFF.pause_s(failures)
            # The start takes longer than the unit allows: this pause, the next try, and some room.
            notify(f"STATUS=waiting for the broker: {error}", more_time(pause_s + 2 * timeout_s + 30))
            threading.Event().wait(pause_s)
