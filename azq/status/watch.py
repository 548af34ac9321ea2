"""Reads the control plane for the table, with or without a daemon."""

from __future__ import annotations

import redis

from azq.arena.rating import rate
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.ledger import Ledger
from azq.status.observe import gather, read_workers
from azq.status.queues import QueueStatus, queue_table
from azq.status.summary import RunStatus, WorkerStatus, summarise, worker_status


class Watch:
    """Summaries of runs, read afresh at each call."""

    def __init__(self, client: redis.Redis) -> None:
        self.bus = RedisBus(client)
        self._ledger = Ledger(client)

    def summary(self, run: str) -> RunStatus:
        """Everything the live table shows of one run; `NotFound` names the runs there are."""
        facts = gather(self._ledger, self.bus, run)
        return summarise(facts, now_ms(), rate(facts.matches))

    def everything(self) -> tuple[tuple[RunStatus, ...], tuple[QueueStatus, ...], tuple[WorkerStatus, ...]]:
        """All runs, queues and processes."""
        workers = read_workers(self.bus)
        facts = [gather(self._ledger, self.bus, view.record.run, workers) for view in self._ledger.runs()]
        looked_ms = now_ms()
        runs = tuple(summarise(one, looked_ms, rate(one.matches)) for one in facts)
        queues = queue_table(workers, [job for one in facts for job in one.jobs], looked_ms)
        return runs, tuple(queues), tuple(worker_status(beat, looked_ms) for beat in workers)
