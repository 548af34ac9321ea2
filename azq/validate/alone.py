"""A run in lockstep in one process: no broker, no queue, nobody who could die. What the system is held to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from azq import games
from azq.actor import Arenas, SelfPlay, Slice
from azq.bus.memory import MemoryBus
from azq.clock import now_ms
from azq.config import RunSections
from azq.inference.ask.local import LocalEvaluator
from azq.inference.weights import WeightCatalog, fetch_from
from azq.learner.opening import LearnerSetup, prepare_training
from azq.learner.tracking.opening import Trackers
from azq.ledger import MemoryLedger
from azq.ledger.records import record_of
from azq.search.evaluator import Evaluator
from azq.status.observe import read_weights
from azq.store import open_store
from azq.validate.versions import HOST, LockstepVersion, version_of
from azq.wire.kinds import Kind
from azq.wire.messages import Job

RUN = "alone"
FOR_EVER_S = 1e6


def play_alone(sections: RunSections, folder: Path) -> Iterator[LockstepVersion]:
    """The versions of such a run, one after the other, for as long as they are asked for; what it makes lies in `folder`."""
    return (version for version, _ in watch_alone(sections, folder))


def watch_alone(sections: RunSections, folder: Path) -> Generator[tuple[LockstepVersion, Evaluator]]:
    """The same, each version with an evaluator that knows it and all before."""
    game, bus = games.load(sections.run.game, **sections.run.params), MemoryBus()
    ledger, store = MemoryLedger(bus), open_store("file", directory=folder / "weights")
    ledger.create_run(record_of(RUN, sections, folder, now_ms()))
    prepare_training(sections.learner)
    setup = LearnerSetup(RUN, folder, sections, game, bus=bus, ledger=ledger, store=store, tracker=Trackers([]), consumer=RUN)
    learner, arenas, never = setup.open(), Arenas(), threading.Event()
    catalog = WeightCatalog(bus, RUN)
    with contextlib.closing(LocalEvaluator.from_catalog(game, catalog, fetch_from(store), HOST)) as evaluator:
        told = 0
        try:
            while True:
                learner.taking.turn()
                learner.turn(never)
                newest = read_weights(bus, RUN)[0]
                if newest.version > told:
                    told = newest.version
                    yield version_of(newest, sections), evaluator
                    _play(ledger, sections, game, evaluator, arenas)
        finally:
            learner.ranks.close()


def _play(ledger: MemoryLedger, sections: RunSections, game: games.Game, evaluator: Evaluator, arenas: Arenas) -> None:
    """All games that may be opened, to their ends."""
    job = ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=sections.learner.lockstep_games, slice_s=FOR_EVER_S))
    lease = ledger.claim(job.job.job_id, 1, RUN, FOR_EVER_S)
    assert lease is not None, "a fresh job of a running run"
    SelfPlay(ledger, Slice(lease, sections, game), evaluator, arenas, should_stop=lambda: not ledger.counts(RUN).open).run()
