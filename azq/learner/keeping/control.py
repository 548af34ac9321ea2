"""What a store keeps of a run's control plane, so that a fleet whose brokers are empty can go on with it: its record, its newest weights.

runs/<run>.<created_ms>/record                            its settings and goals
                        weights/<version>.<published_ms>  the events of its newest weights
"""

from __future__ import annotations

from azq.config import StoreConfig
from azq.errors import ConfigError, NotFound, StoreError
from azq.learner.keeping.kept import folder_of
from azq.store.shelf import Shelf, open_shelf
from azq.wire.codec import decode, encode
from azq.wire.messages import RunRecord, WeightEvent

RUNS, RECORD, WEIGHTS = "runs", "record", "weights"
KEEP = 3  # newest events; the weights themselves all stay


def keep_event(shelf: Shelf, event: WeightEvent) -> None:
    """Keeps the event of new weights, and of older ones the newest. Raises `StoreError`."""
    shelf.write(f"{WEIGHTS}/{event.version:010d}.{event.published_ms:015d}", encode(event))
    for name in sorted(shelf.names(WEIGHTS))[:-KEEP]:
        shelf.remove(name)


def kept_events(shelf: Shelf) -> list[WeightEvent]:
    """The events that are kept, newest first. Raises `StoreError`, `WireError`."""
    frames = map(shelf.read, sorted(shelf.names(WEIGHTS), reverse=True))
    return [decode(frame, WeightEvent) for frame in frames if frame is not None]


def find_run(settings: StoreConfig, run: str) -> tuple[RunRecord, Shelf]:
    """The last run of a name that a store keeps, and where.

    Raises `ConfigError` for a store of weights alone, `NotFound` where it has no such run, `StoreError`, `WireError`.
    """
    base = open_shelf(settings, RUNS)
    if base is None:
        raise ConfigError(f"store.url {settings.url} with store.keep {settings.keep} keeps no games; name the store that has the run")
    lives = [(name, int(created)) for name, _, created in (folder.rpartition(".") for folder in base.folders()) if created.isdigit()]
    if run not in {name for name, _ in lives}:
        there = ", ".join(sorted({name for name, _ in lives})) or "none"
        raise NotFound(f"no run {run!r} in {settings.url}; there are: {there}")
    created_ms = max(created for name, created in lives if name == run)
    folder = folder_of(RunRecord(run, b"", {}, "", created_ms))
    shelf = open_shelf(settings, folder)
    frame = shelf.read(RECORD) if shelf else None
    if shelf is None or frame is None:
        raise StoreError(f"{settings.url}/{folder} holds no {RECORD}: its learner was of an older azq; start it once with this one")
    return decode(frame, RunRecord), shelf
