"""What the REST interface works with; handed in by `daemon.api.rest`, so that tests hand in doubles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from azq.bus.base import Bus
from azq.bus.wanted import MoveWishes
from azq.clock import now_ms
from azq.config import DaemonConfig, RunSections
from azq.games import Game
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.replay.readers import SegmentReader
from azq.search.evaluator import Evaluator, UniformEvaluator
from azq.status.brokers import Plane
from azq.status.history import FirstsOfRuns
from azq.status.observe import Beats, Standings
from azq.status.workers import Workforce
from azq.store import Store, open_run_store
from azq.wire.messages import Heartbeat, RunRecord
from daemon.api.limits import MAX_QUEUED_JOBS, MAX_RUNS, RATE_PER_S, Streams, room
from daemon.serve.health import Health

EvaluatorOf = Callable[[RunRecord, RunSections, Game], Evaluator]  # of the run's networks; closed by its user


def guesses(record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
    """The double: it thinks all moves alike."""
    return UniformEvaluator(game.num_distinct_actions(), game.value_size())


READERS = 16  # of segments folders: those used lately stay, with what they know of their files


@dataclass(frozen=True, slots=True)
class Services:
    """Ledger and control-plane bus, the daemon's settings and pulse, and what it knows of games."""

    ledger: Ledger
    bus: Bus
    config: DaemonConfig
    health: Health
    home: Path
    game_names: Callable[[], Sequence[str]]
    planes: Sequence[Plane] = ()
    clock_ms: Callable[[], int] = field(default=now_ms)
    store_of: Callable[[RunRecord, Path], Store] = field(default=partial(open_run_store, "file"))  # on a host with that home
    games_of: Callable[[Path], SegmentReader] = field(default_factory=lambda: lru_cache(READERS)(SegmentReader))
    evaluator_of: EvaluatorOf = field(default=guesses)
    streams: Streams = field(default_factory=Streams)
    beats: Beats | None = None  # shared with the loop; None: every question is asked of the bus
    standings: Standings = field(default_factory=Standings)
    firsts: FirstsOfRuns = field(default_factory=FirstsOfRuns)
    wishes: MoveWishes = field(default_factory=MoveWishes)
    max_runs: int = MAX_RUNS
    max_queued_jobs: int = MAX_QUEUED_JOBS
    rate_per_s: float = RATE_PER_S
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def admit_run(self) -> AbstractContextManager[None]:
        """While entered one more run may start. Raises `TooManyRequests` where too many are running."""
        return room(self._turn, lambda: self.ledger.load().running, self.max_runs, "runs are running; pause or finish one")

    def admit_job(self) -> AbstractContextManager[None]:
        """While entered one more job may be enqueued. Raises `TooManyRequests` where too many have not ended."""
        return room(self._turn, lambda: self.ledger.load().jobs, self.max_queued_jobs, "jobs wait or run; revoke some")

    def wanted_record(self, run: str) -> RunRecord:
        """A run whose networks are to answer soon: inference workers wake it where it is over. Raises `NotFound`, `BrokerError`."""
        view = self.ledger.run(run)
        if view.state is not RunState.RUNNING:
            self.wishes.add(self.bus, run)
        return view.record

    def workers(self) -> tuple[Heartbeat, ...]:
        """The live processes. Raises `BrokerError`."""
        return self._beats().read()

    def team(self, run: str) -> Workforce:
        """The live processes that may work for a run. Raises `BrokerError`."""
        return self._beats().team(run, self.clock_ms())

    def _beats(self) -> Beats:
        return self.beats or Beats(self.bus)


async def _services(request: Request) -> Services:  # async: a plain function would cost each request a change of threads
    services: Services = request.app.state.services
    return services


Use: TypeAlias = Annotated[Services, Depends(_services)]
