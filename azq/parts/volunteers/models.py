"""A run's weights as networks that browsers run: each made once, kept as a blob, and noted with what it must answer; and what a
page needs so that they play in the tab itself.

Who only reads the notes needs no PyTorch.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import redis
from numpy.typing import NDArray

from azq import games
from azq.arena.levels import Level, ladder
from azq.arena.players import version_of
from azq.arena.rating import Rating
from azq.bus.base import Bus
from azq.bus.catalog import VersionCatalog
from azq.bus.redis import RedisBus
from azq.config import RunSections, StoreConfig
from azq.errors import UnknownGameError
from azq.games import Game
from azq.games.files import GameFiles
from azq.search.search import greedy, largest_budget
from azq.status.observe import serving_version
from azq.store import Store, open_run_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import ModelEvent, RunRecord, WeightEvent
from azq.wire.tabs import ModelUpdate

PROBES = 8  # positions that a browser tries a network on
TOLERANCE = 2.0**-12  # of the largest logit: half a step of the float16 that logits are rounded to before a search reads them


class ModelCatalog(VersionCatalog[ModelEvent]):
    """The networks of one run that were made for browsers, by version; up to date whenever it is asked."""

    def __init__(self, control: Bus, run: str) -> None:
        super().__init__(control, keys.onnx(run), ModelEvent, "model")

    def find(self, version: int) -> ModelEvent | None:
        """The network of a version; None: none was made yet."""
        known = super().find(version)
        return known if known is not None or not self._read() else super().find(version)

    def all(self) -> list[ModelEvent]:
        """Those of all versions that were made, the newest first."""
        self._read()
        return self.newest_first()

    def _read(self) -> bool:
        found = False
        while self.refresh():
            found = True
        return found


def make_model(control: Bus, store: Store, game: Game, weights: WeightEvent, catalog: ModelCatalog) -> ModelEvent:
    """The network of published weights; made, stored and noted unless it is there. Two who make it at once write the same.

    Raises `WeightsError` for weights that are damaged or do not fit the game, `StoreError`, `BrokerError`.
    """
    if (known := catalog.find(weights.version)) is not None:
        return known
    event = _made(store, game, weights)
    control.publish(keys.onnx(weights.run), encode(event))
    return event


def _made(store: Store, game: Game, weights: WeightEvent) -> ModelEvent:
    import torch

    from azq.nets import restore, unpack
    from azq.nets.onnx import to_onnx

    network = restore(store.get(weights.uri, weights.sha256), game)
    positions = probe_positions(game)
    with torch.inference_mode():
        logits, values = (output.numpy() for output in network(*unpack(torch.from_numpy(positions), network.spec)))
    data = to_onnx(network)
    sha256, uri = store.put(data)
    tolerance = TOLERANCE * max(1.0, float(np.abs(logits).max()))
    answers = logits.astype("<f4").tobytes(), values.astype("<f4").tobytes()
    return ModelEvent(weights.version, sha256, uri, len(data), positions.tobytes(), *answers, tolerance)


def probe_positions(game: Game, count: int = PROBES) -> NDArray[np.uint8]:
    """Packed observations (count, P) of positions in random games, the same ones every time."""
    rng = random.Random(0)
    found: list[NDArray[np.uint8]] = []
    while len(found) < count:
        state = game.new_initial_state()
        seen = []
        while not state.is_terminal():
            if not state.is_chance_node():
                seen.append(state.packed_observation())
            state.apply_action(rng.choice(state.legal_actions()))
        found.extend(rng.sample(seen, min(2, len(seen))))
    return np.stack(found[:count])


class StoredNetworks:
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


MOST_SIMULATIONS = 1600  # a move of a level: a tab is slower than a server


@dataclass(frozen=True, slots=True)
class TabNetwork:
    """A network that a tab can fetch."""

    version: int
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Playable:
    """All of one run; `search` is what the core in the tab is given, whatever the simulations."""

    run: str
    game: str
    params: dict[str, Any]
    search: dict[str, Any]
    networks: list[TabNetwork]
    levels: list[Level]


def playable(run: str, sections: RunSections, models: Sequence[ModelEvent], ratings: Iterable[Rating]) -> Playable:
    """A run for tabs; networks by version, levels of those alone that there are networks of."""
    networks = [TabNetwork(model.version, model.sha256, model.size) for model in sorted(models, key=lambda model: model.version)]
    there = {network.version for network in networks}
    levels = ladder((one for one in ratings if version_of(one.player) in there), sections.arena.num_simulations, MOST_SIMULATIONS)
    search = greedy(sections.search, largest_budget(sections.search)).model_dump(exclude={"schedule"})
    search |= {"random_opening_plies": 0, "leaves_per_step": 1}
    return Playable(run, sections.run.game, dict(sections.run.params), search, networks, levels)
