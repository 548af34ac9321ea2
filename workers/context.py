"""What one pool child keeps between jobs, and how it holds one: connections, the ledger, search arenas. Made after the fork."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import redis
from celery.exceptions import Ignore

from azq import games, logs
from azq.actor.groups import Arenas
from azq.actor.progress import Meter
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.config import Config, RunSections
from azq.errors import AzqError, BrokerError, JobFailed, LeaseLost, reason_of
from azq.goals import Done, Goals
from azq.ledger import Ledger
from azq.ledger.ledger import MAX_ATTEMPTS
from azq.ledger.records import sections_of
from azq.ledger.types import Lease, RunView
from azq.phases import Phases
from azq.process.proc import usable_cores
from azq.search.evaluator import Evaluator, UniformEvaluator
from azq.search.search import search_at
from azq.status.observe import LOOK_BACK, read_weights
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.messages import Fleet, RunRecord
from workers.children import ChildFigures, ChildHeartbeat, owner_of

if TYPE_CHECKING:
    from azq.games import Game

T = TypeVar("T")

NO_LIMIT = 2**31  # a stopped worker is not the job's fault

log = logs.get(__name__)


def sections_now(ledger: Ledger, bus: Bus, view: RunView) -> RunSections:
    """The run's settings with the search as it is at this share of its horizon, after so many samples; raises `ConfigError`."""
    sections, until = sections_of(view.record), view.record.until
    if not sections.search.schedule:
        return sections
    games = ledger.counts(view.record.run).finished
    by_samples = any(stage.samples is not None for stage in sections.search.schedule)
    newest = read_weights(bus, view.record.run, LOOK_BACK) if "steps" in until or by_samples else []
    steps, samples = (newest[0].step, newest[0].samples) if newest else (0, 0)
    now = search_at(sections.search, Goals(until).progress(Done.of(view.active_ms, games, steps)), samples)
    return sections.model_copy(update={"search": now})


class Interrupted(AzqError):
    """The worker is stopping; the job is for somebody else."""


class Context:
    """A child's belongings; `owner` names it in the ledger."""

    def __init__(self, config: Config, heartbeat: ChildHeartbeat) -> None:
        self.config = config
        self.board = heartbeat.board
        self.slot = heartbeat.slot
        self.owner = owner_of(os.getpid())
        self.arenas = Arenas()
        self.meter = Meter()
        self.phases = Phases()
        self.clock: Callable[[], float] = time.monotonic  # of slices, as their wait is; a simulation has its own
        self.wait: Callable[[float], object] | None = None
        self._evaluators = 0
        self._heartbeat = heartbeat

    @cached_property
    def control(self) -> redis.Redis:
        return connect(self.config.broker.control_url)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.control)

    def stopping(self) -> bool:
        """Whether the worker is stopping; who asks is alive."""
        self._heartbeat.progressed()
        return self.board.stopping()

    def work(self, job_id: str, attempt: int, task: Callable[[Lease], T]) -> T:
        """What a task makes of the lease on a job. Raises `Ignore` where somebody else has it, it is over or this message is stale.

        An error of the task ends the job's attempt with the reason, in the ledger and in the log; the ledger gives its games back to the
        pool and decides whether it is tried again. A lost lease or broker is no error of the job: its lease runs out by itself. Both
        raise `JobFailed` afterwards, for which Celery acknowledges the message: only the ledger gives a job another attempt.
        """
        if self.stopping():
            raise Ignore("the worker is stopping")  # its message is not lost: the job is unclaimed, so it is published again
        self._heartbeat.hold(job_id, attempt)  # before the claim: the main process then knows the lease of a child that dies in between
        try:
            lease = self.ledger.claim(job_id, attempt, self.owner, self.config.daemon.lease_s)
            if lease is None:
                log.info("claim_refused", job=job_id, attempt=attempt)
                raise Ignore("the ledger refused the claim")
            return self._answered(lease, task)
        finally:
            self._heartbeat.hold("")
            self.board.write(self.slot, ChildFigures())

    def sections_now(self, view: RunView) -> RunSections:
        """As `sections_now`, with this child's connections."""
        return sections_now(self.ledger, RedisBus(self.control), view)

    def game(self, sections: RunSections) -> Game:
        return games.GameFiles(self.config.worker.game_files).load(sections.run.game, sections.run.params)

    def evaluator(self, record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
        """The evaluator that the run asks for, or this host where that is the stream; the caller closes it."""
        if sections.selfplay.evaluator == "uniform":
            return UniformEvaluator(game.num_distinct_actions(), game.value_size())
        if "local" in (sections.selfplay.evaluator, self.config.worker.evaluator):
            return self._local(record, sections, game)
        from azq.inference.ask.stream import open_stream

        self._evaluators += 1
        who = f"{self.owner}:{self._evaluators}"
        return open_stream(self.config.broker, record.run, game, who, self.phases, self.near_inference())

    def near_inference(self) -> Path | None:
        """The home folder whose inference workers are asked directly: this host's, unless there are others."""
        frame = RedisBus(self.control).get(keys.FLEET) if self.config.worker.evaluator == "auto" else None
        alone = frame is not None and decode(frame, Fleet).inference_hosts == (socket.gethostname(),)
        return self.config.home if alone else None

    def _answered(self, lease: Lease, task: Callable[[Lease], T]) -> T:
        try:
            return task(lease)
        except (Ignore, JobFailed):
            raise
        except (LeaseLost, BrokerError) as error:
            log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(error))
            raise JobFailed(reason_of(error)) from None
        except Interrupted as error:
            self._fail(lease, error, NO_LIMIT)
        except Exception as error:
            self._fail(lease, error)

    def _fail(self, lease: Lease, error: Exception, max_attempts: int = MAX_ATTEMPTS) -> NoReturn:
        reason = reason_of(error)
        expected = isinstance(error, AzqError)
        log.error("job_failed", job=lease.job.job_id, attempt=lease.attempt, reason=reason, exc_info=None if expected else error)
        try:
            self.ledger.fail(lease, reason, max_attempts=max_attempts)
        except (LeaseLost, BrokerError) as lost:
            log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(lost))
        raise JobFailed(reason) from (None if expected else error)

    def _local(self, record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
        from azq.inference.ask.local import LocalEvaluator
        from azq.inference.weights import WeightCatalog, fetch_from
        from azq.store import open_run_store

        store = open_run_store(self.config.store, record, self.config.home, self.control)
        catalog = WeightCatalog(RedisBus(self.control), record.run, gated=sections.arena.promotes)
        config = self.config.inference
        threads = config.threads or max(1, usable_cores() // self.board.slots)  # the other children evaluate as well
        return LocalEvaluator.from_catalog(game, catalog, fetch_from(store), config.model_copy(update={"threads": threads}))
