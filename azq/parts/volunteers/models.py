"""Networks as tabs evaluate with them: what a gateway reads of the events that `model_maker` publishes; it needs no PyTorch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

import redis

from azq import games
from azq.bus.catalog import ModelCatalog
from azq.bus.redis import RedisBus
from azq.config import RunSections, StoreConfig
from azq.errors import UnknownGameError
from azq.games.files import GameFiles
from azq.status.observe import serving_version
from azq.store import Store, open_run_store
from azq.wire.messages import RunRecord
from azq.wire.tabs import ModelUpdate


class Networks(Protocol):
    """What tabs evaluate with."""

    def find(self, record: RunRecord, sections: RunSections, version: int | None = None) -> ModelUpdate | None:
        """The message about a version's network, or the newest that tabs can load; None: there is none. Slow; raises `AzqError`."""
        ...

    def read(self, sha256: str) -> bytes | None:
        """A network that `find` named."""
        ...


class StoredNetworks(Networks):
    """Networks of the control plane's runs; safe to share between threads."""

    def __init__(self, settings: StoreConfig, home: Path, client: redis.Redis) -> None:
        self._settings = settings
        self._home = home
        self._client = client
        self._bus = RedisBus(client)
        self._lock = threading.Lock()
        self._catalogs: dict[tuple[str, int], ModelCatalog] = {}
        self._places: dict[str, tuple[Store, str]] = {}  # by sha256: store and URI

    def find(self, record: RunRecord, sections: RunSections, version: int | None = None) -> ModelUpdate | None:
        if sections.run.game not in games.names():
            raise UnknownGameError(f"tabs cannot play {sections.run.game}: it is none of the core's games; leave volunteers.kinds empty")
        game = GameFiles().load(sections.run.game, sections.run.params)
        if sections.selfplay.evaluator == "uniform":
            return ModelUpdate(record.run, game.name, dict(game.params), version or 0, "", 0, b"", b"", b"", 0.0)
        if version is None:
            version = serving_version(self._bus, record.run, gated=sections.arena.promotes) or None
        with self._lock:
            catalog = self._catalogs.setdefault((record.run, record.created_ms), ModelCatalog(self._bus, record.run))
            made = catalog.find(version) if version is not None else None
            if made is None:
                return None
            store = open_run_store(self._settings, record, self._home, self._client)
            self._places |= {model.sha256: (store, model.uri) for model in catalog.all()}  # who plays against the run asks for older ones
        probes = (made.positions, made.logits, made.values, made.tolerance)
        return ModelUpdate(record.run, game.name, dict(game.params), made.version, made.sha256, made.size, *probes)

    def read(self, sha256: str) -> bytes | None:
        store, uri = self._places.get(sha256, (None, ""))
        return store.get(uri, sha256) if store is not None else None
