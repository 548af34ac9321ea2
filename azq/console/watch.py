"""Reads the control plane for the table, with or without a daemon."""

from __future__ import annotations

import time

import redis

from azq.arena.rating import rate
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.ledger import Ledger
from daemon.observe import gather
from daemon.summary import RunStatus, summarise


class Watch:
    """Summaries of runs, read afresh at each call."""

    def __init__(self, client: redis.Redis, config: Config) -> None:
        self.bus = RedisBus(client)
        self._ledger = Ledger(client)
        self._config = config

    def summary(self, run: str) -> RunStatus:
        """Everything the live table shows of one run; `NotFound` names the runs there are."""
        facts = gather(self._ledger, self.bus, run)
        return summarise(facts, int(time.time() * 1000), rate(facts.matches))
