"""A tab without a browser: games made as a run orders them, by a small network that needs no torch; and ways to make them otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.config import RunSections
from azq.parts.volunteers.handouts import NO_TERMS, Returned, Terms
from azq.parts.volunteers.plausibility import SearchOrder
from azq.search.recomputation import Outputs
from azq.wire.arrays import pack_record
from azq.wire.messages import GameRecord

SLOTS = 64


class TinyNetworks:
    """Two layers of random weights for each version; float32 rounded to float16, each row alike in whatever batch it is."""

    def __init__(self, game: _core.Game) -> None:
        self._game = game
        self._weights: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def __call__(self, version: int, packed: NDArray[np.uint8]) -> Outputs:
        actions, bits = self._game.num_distinct_actions(), np.unpackbits(packed, axis=1).astype(np.float64) - 0.5
        if version not in self._weights:
            rng, width = np.random.default_rng(version), 32
            self._weights[version] = rng.normal(size=(bits.shape[1], width)), rng.normal(size=(width, actions + self._game.value_size()))
        first, second = self._weights[version]
        out = np.maximum(bits @ first / 4, 0) @ second / 4
        return out[:, :actions].astype(np.float16), np.tanh(out[:, actions:]).astype(np.float16)


def order_of(name: str, *, versions: Sequence[int] = (1, 2, 3), **search: Any) -> SearchOrder:
    """The order of a run of a game."""
    settings = {"num_simulations": 16} | search
    run, selfplay = {"game": name, "seed": 11}, {"random_opening_plies": 2}
    sections = RunSections.model_validate({"run": run, "search": settings, "selfplay": selfplay})
    return SearchOrder.of(_core.load_game(name, {}), sections, sections.search, versions)


def games_of(
    order: SearchOrder, evaluate: Any, uids: Sequence[int], *, version: int = 3, config: _core.SearchConfig | None = None, luck: int = 0
) -> list[Returned]:
    """Finished games with these numbers, each with `luck` more, for this version and made as ordered or, with a `config`, otherwise."""
    terms = Terms(version, order.search.num_simulations)
    config = config or order.config(terms.budget)
    search = _core.Search(order.game, config, num_slots=len(uids), seed=order.seed)
    for slot, uid in enumerate(uids):
        search.start(slot, uid + luck, np.zeros(0, np.uint16))
    capacity = len(uids) * config.leaves_per_step
    packed, slots = np.zeros((capacity, order.game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    while leaves := search.collect(packed, slots):
        logits, values = evaluate(version, packed[:leaves])
        search.apply(logits, values, version)
    records = [msgspec.structs.replace(pack_record(search.record(slot)), uid=uid) for slot, uid in enumerate(uids)]
    return [returned(record, terms, record.uid + luck if luck else 0) for record in records]


def returned(record: GameRecord, terms: Terms = NO_TERMS, luck: int = 0) -> Returned:
    """A game that was handed out without any ply."""
    return Returned(record, GameRecord(record.uid), terms, luck)


def with_arrays(game: Returned, **arrays: NDArray[Any]) -> Returned:
    """The game with other arrays."""
    changed: Mapping[str, bytes] = {name: array.tobytes() for name, array in arrays.items()}
    return replace(game, record=msgspec.structs.replace(game.record, **changed))
