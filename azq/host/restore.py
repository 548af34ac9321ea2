"""A run goes on from its folder, or from its store: `azq up` after its control plane was lost, and `azq runs restore` for a fleet."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import redis

from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.errors import NotFound, StateConflict
from azq.games import Game
from azq.host import brokers
from azq.host.game_files import load_game
from azq.host.rundir import RunDir
from azq.learner.data.intake import game_key, restore
from azq.ledger import Ledger
from azq.ledger.holder import held_place, lock_folder
from azq.ledger.records import check_run_name, record_of, sections_of
from azq.replay.samples import count_trained
from azq.replay.segments import SegmentLog
from azq.store.signing import make_key
from azq.wire.messages import RunRecord


def holds_games(directory: Path) -> bool:
    return any((directory / "segments").glob("*.seg"))


def create_from_folder(ledger: Ledger, bus: Bus, record: RunRecord, sections: RunSections, game: Game) -> int:
    """Creates the run where the control plane does not know it, and lets it go on from its folder; returns the games written off.

    The log is read first, so that hardly any time passes between the run's creation and its numbers. Raises `StateConflict` while a
    learner trains it, `SegmentError` for a log that cannot be read.
    """
    directory = Path(record.directory)
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
    name, sections = check_run_name(name or folder.name), run.sections()
    game = load_game(config, sections.run.game, sections.run.params, run.settings)
    client = brokers.open_control(config)[1]
    return _restored(client, record_of(name, sections, folder, now_ms()), sections, game)


def restore_kept(config: Config, name: str, folder: Path | None = None) -> dict[str, Any]:
    """`azq runs restore --from-store`: the same of a run that these settings' store keeps, brought to a folder of this host first.

    What of its weights is newest its learner announces. Raises `StateConflict` for a run that the control plane knows or a folder of
    another one, and what `find_run`, `read_record` and `Downloader` raise; the control plane is as it was then.
    """
    from azq.learner.replication.downloader import Downloader, wanted_samples
    from azq.learner.replication.remote_index import find_run, read_record  # `azq up` does without

    client = brokers.open_control(config)[1]
    if name in {view.record.run for view in Ledger(client).runs()}:
        raise StateConflict(f"run {name} exists in this control plane; start its learner, which fetches by itself what the store keeps")
    prefix = find_run(config.store, check_run_name(name), make_key(client, config.home))
    record = read_record(prefix)
    sections = sections_of(record)
    game = load_game(config, sections.run.game, sections.run.params, f"{prefix.folder}/record in the store")
    folder = (folder or config.home / name).absolute()
    run = RunDir(folder.parent, folder.name)
    if run.exists() and run.sections() != sections:
        raise StateConflict(f"{folder} is of a run with other settings; name another folder")
    with lock_folder(folder):
        Downloader(prefix, folder, wanted_samples(sections.learner)).run()
        run.create(sections)
    return _restored(client, msgspec.structs.replace(record, directory=str(folder)), sections, game)


def sign_kept(config: Config, name: str) -> dict[str, Any]:
    """`azq runs sign`: signs all that these settings' store holds of a run; returns how many objects were unsigned."""
    from azq.learner.replication.remote_index import find_run

    client = brokers.open_control(config)[1]
    prefix = find_run(config.store, check_run_name(name), make_key(client, config.home))
    return {"run": name, "folder": prefix.folder, "signed": prefix.sign()}


def _restored(client: redis.Redis, record: RunRecord, sections: RunSections, game: Game) -> dict[str, Any]:
    ledger = Ledger(client)
    gone = create_from_folder(ledger, RedisBus(client), record, sections, game)
    counts = ledger.counts(record.run)
    return {"run": record.run, "games": counts.inserted, "written_off": gone, "balanced": counts.balanced}
