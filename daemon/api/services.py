"""What the REST interface works with; handed in by `daemon.main`, so that tests hand in doubles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

from fastapi import Depends, Request

from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import DaemonConfig
from azq.ledger.types import JobView, LedgerLoad, Once, RunState, RunView
from azq.replay.readers import SegmentReader
from azq.status.beats import Beats
from azq.status.observe import LedgerReader
from azq.status.planes import PlaneProbe
from azq.status.ratings import Standings
from azq.status.workers import Team
from azq.store import Store, open_store
from azq.wire.messages import Heartbeat, RunRecord
from daemon.api.admission import Quota
from daemon.api.streams import Streams
from daemon.serve.health import Health

READERS = 16


class LedgerFace(LedgerReader, Protocol):
    """The part of the ledger that the REST interface needs."""

    def create_run_once(self, record: RunRecord, once: Once | None) -> tuple[RunView, bool]: ...
    def first_run(self, name: str, once: Once | None) -> RunView | None: ...
    def set_run_state(self, name: str, state: RunState, reason: str = "") -> RunView: ...
    def update_run_until(self, name: str, until: dict[str, float]) -> RunView: ...
    def delete_run(self, name: str) -> None: ...
    def load(self) -> LedgerLoad: ...
    def enqueue_once(
        self,
        once: Once | None,
        run: str,
        kind: str,
        tag: str,
        *,
        priority: int = 6,
        games: int = 0,
        slice_s: float = 0,
        payload: bytes = b"",
    ) -> tuple[JobView, bool]: ...
    def first_job(self, run: str, once: Once | None) -> JobView | None: ...
    def jobs_below(self, run: str, below: int | None = None, *, active_only: bool = True, limit: int = 200) -> list[JobView]: ...
    def job(self, job_id: str) -> JobView: ...
    def cancel(self, job_id: str) -> JobView: ...


def local_store(view: RunView) -> Store:
    """Blobs in the run's own folder on this host."""
    return open_store("file", directory=Path(view.record.directory) / "weights")


def kept_readers() -> Callable[[Path], SegmentReader]:
    """Readers of segments folders; those used lately stay, with what they know of their files."""
    return lru_cache(READERS)(SegmentReader)


@dataclass(frozen=True, slots=True)
class Services:
    """Ledger and control-plane bus, the daemon's settings and pulse, and what it knows of games."""

    ledger: LedgerFace
    bus: Bus
    config: DaemonConfig
    health: Health
    home: Path
    game_names: Callable[[], Sequence[str]]
    planes: Sequence[PlaneProbe] = ()
    clock_ms: Callable[[], int] = field(default=now_ms)
    store_of: Callable[[RunView], Store] = field(default=local_store)
    games_of: Callable[[Path], SegmentReader] = field(default_factory=kept_readers)
    streams: Streams = field(default_factory=Streams)
    beats: Beats | None = None  # shared with the loop; None: every question is asked of the bus
    standings: Standings = field(default_factory=Standings)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def admission(self) -> Quota:
        """Whether more runs and jobs are taken on."""
        return Quota(self.ledger, self.config, self._turn)

    def workers(self) -> tuple[Heartbeat, ...]:
        """The live processes. Raises `BrokerError`."""
        return self._beats().read()

    def team(self, run: str) -> Team:
        """The live processes that may work for a run. Raises `BrokerError`."""
        return self._beats().team(run, self.clock_ms())

    def _beats(self) -> Beats:
        return self.beats or Beats(self.bus)


async def _services(request: Request) -> Services:  # async: a plain function would cost each request a change of threads
    services: Services = request.app.state.services
    return services


Use: TypeAlias = Annotated[Services, Depends(_services)]
