"""A tab without a browser: games made as a run orders them, by a small network that needs no torch; and ways to make them otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.config import RunSections
from azq.search.recomputation import Outputs
from azq.volunteers.judging import Returned
from azq.volunteers.plausibility import SearchOrder
from azq.wire.arrays import pack_record
from azq.wire.messages import GameRecord

SLOTS = 64
SPENT_MS = 60_000


class TinyNetworks:
    """Two layers of random weights for each version; float32 rounded to float16, each row alike in whatever batch it is."""

    def __init__(self, game: _core.Game) -> None:
        self._game = game

    def __call__(self, version: int, packed: NDArray[np.uint8]) -> Outputs:
        rng = np.random.default_rng(version)
        width, actions = 32, self._game.num_distinct_actions()
        bits = np.unpackbits(packed, axis=1).astype(np.float64) - 0.5
        hidden = np.maximum(bits @ rng.normal(size=(bits.shape[1], width)) / 4, 0)
        out = hidden @ rng.normal(size=(width, actions + self._game.value_size())) / 4
        return out[:, :actions].astype(np.float16), np.tanh(out[:, actions:]).astype(np.float16)


def order_of(name: str, *, versions: Sequence[int] = (1, 2, 3), least_quality: int = 50, **search: Any) -> SearchOrder:
    """The order of a run of a game."""
    settings = {"num_simulations": 16} | search
    run, selfplay, volunteers = {"game": name, "seed": 11}, {"random_opening_plies": 2}, {"least_quality": least_quality}
    sections = RunSections.model_validate({"run": run, "search": settings, "selfplay": selfplay, "volunteers": volunteers})
    return SearchOrder.of(_core.load_game(name, {}), sections, sections.search, versions)


def games_of(
    order: SearchOrder, evaluate: Any, uids: Sequence[int], *, version: int = 3, config: _core.SearchConfig | None = None
) -> list[Returned]:
    """Finished games with these numbers, made as ordered or, with a `config`, otherwise."""
    config = config or order.config(order.budgets[-1])
    search = _core.Search(order.game, config, num_slots=len(uids), seed=order.seed)
    for slot, uid in enumerate(uids):
        search.start(slot, uid, np.zeros(0, np.uint16))
    capacity = len(uids) * config.leaves_per_step
    packed, slots = np.zeros((capacity, order.game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    while leaves := search.collect(packed, slots):
        logits, values = evaluate(version, packed[:leaves])
        search.apply(logits, values, version)
    return [returned(pack_record(search.record(slot))) for slot in range(len(uids))]


def returned(record: GameRecord, spent_ms: int = SPENT_MS) -> Returned:
    """A game that was handed out without any ply."""
    return Returned(record, GameRecord(record.uid), spent_ms)


def with_arrays(game: Returned, **arrays: NDArray[Any]) -> Returned:
    """The game with other arrays."""
    changed: Mapping[str, bytes] = {name: array.tobytes() for name, array in arrays.items()}
    return Returned(msgspec.structs.replace(game.record, **changed), game.handed, game.spent_ms)
