"""A run goes on from its folder: `azq up` after its control plane was lost, and `azq runs restore` for a fleet."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

from azq import games
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.errors import NotFound
from azq.host import brokers
from azq.host.rundir import RunDir, check_name
from azq.learner.data.intake import game_key, restore
from azq.ledger import Ledger
from azq.ledger.holder import held_place, lock_folder
from azq.ledger.records import record_of
from azq.replay.samples import count_trained
from azq.replay.segments import SegmentLog
from azq.wire.messages import RunRecord


def holds_games(directory: Path) -> bool:
    return any((directory / "segments").glob("*.seg"))


def create_from_folder(ledger: Ledger, bus: Bus, record: RunRecord, sections: RunSections) -> int:
    """Creates the run where the control plane does not know it, and lets it go on from its folder; returns the games written off.

    The log is read first, so that hardly any time passes between the run's creation and its numbers. Raises `StateConflict` while a
    learner trains it, `SegmentError` for a log that cannot be read.
    """
    directory = Path(record.directory)
    game = games.load(sections.run.game, **sections.run.params)
    with lock_folder(directory):
        log = SegmentLog(directory / "segments", game_key(sections), count=partial(count_trained, game))
        try:
            if record.run not in {view.record.run for view in ledger.runs()}:
                ledger.create_run(record)
            with held_place(ledger, record.run, threading.Event().wait) as lease:
                return restore(record.run, ledger, bus, log, lease)
        finally:
            log.close()


def restore_run(config: Config, folder: Path, name: str) -> dict[str, Any]:
    """`azq runs restore`: the run of a folder, in the control plane of these settings, and what was written off."""
    folder = folder.absolute()
    run = RunDir(folder.parent, folder.name)
    if not run.exists() or not holds_games(folder):
        raise NotFound(
            f"{folder} is no folder of a run with games: it has no run.toml, or no segments; name the one that its learner wrote"
        )
    name, sections = check_name(name or folder.name), run.sections()
    client = brokers.open_control(config)[1]
    record = record_of(name, sections, folder, now_ms())
    ledger = Ledger(client)
    gone = create_from_folder(ledger, RedisBus(client), record, sections)
    counts = ledger.counts(name)
    return {"run": name, "games": counts.inserted, "written_off": gone, "balanced": counts.balanced}
