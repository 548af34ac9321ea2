"""What a store keeps of a run's control plane, so that a fleet whose brokers are empty can go on with it: its record, its newest weights.

runs/<run>.<created_ms>/record                            its settings and goals
                        weights/<version>.<published_ms>  the events of its newest weights
"""

from __future__ import annotations

import re
from collections.abc import Callable

from azq.config import StoreConfig
from azq.errors import ConfigError, NotFound, StoreError
from azq.learner.keeping.kept import folder_of
from azq.store.shelf import Shelf, open_shelf
from azq.store.signing import SignedShelf
from azq.wire.codec import decode, encode
from azq.wire.messages import RunRecord, WeightEvent

RUNS, RECORD, WEIGHTS = "runs", "record", "weights"
_LIFE = re.compile(r"([a-z0-9_-]+)\.([0-9]{1,15})")
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


def open_kept(settings: StoreConfig, record: RunRecord, key: Callable[[], bytes]) -> SignedShelf | None:
    """The shelf of a run, whose objects `key` signs; None where the store keeps weights alone. Raises `ConfigError`, `StoreError`."""
    folder = folder_of(record)
    shelf = open_shelf(settings, folder)
    return SignedShelf(shelf, folder, key()) if shelf else None


def find_shelf(settings: StoreConfig, run: str, key: bytes) -> SignedShelf:
    """The shelf of the last run of a name that a store keeps.

    Raises `ConfigError` for a store of weights alone, `NotFound` where it has no such run, `StoreError`.
    """
    base = open_shelf(settings, RUNS)
    if base is None:
        raise ConfigError(f"store.url {settings.url} with store.keep {settings.keep} keeps no games; name the store that has the run")
    lives = [(life[1], int(life[2])) for life in map(_LIFE.fullmatch, base.folders()) if life]
    if run not in {name for name, _ in lives}:
        there = ", ".join(sorted({name for name, _ in lives})) or "none"
        raise NotFound(f"no run {run!r} in {settings.url}; there are: {there}")
    newest = RunRecord(run, b"", {}, "", max(created for name, created in lives if name == run))
    shelf = open_kept(settings, newest, lambda: key)
    assert shelf is not None, "its base is there"
    return shelf


def kept_record(shelf: SignedShelf) -> RunRecord:
    """The record of a run whose shelf this is. Raises `StoreError`, `WireError`."""
    frame = shelf.read(RECORD)
    if frame is None:
        shelf.names()  # names one that is not signed
        raise StoreError(f"{shelf.folder} in the store holds no {RECORD}: its learner was of an older azq; start it once with this one")
    record = decode(frame, RunRecord)
    if folder_of(record) != shelf.folder:
        raise StoreError(f"{shelf.folder}/{RECORD} in the store is of {folder_of(record)}; remove that folder, or put its own record back")
    return record
