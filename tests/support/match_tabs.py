"""A simulated tab that also plays matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray
from simulated_tab import SimulatedTab, bring, brought
from websockets.sync.client import ClientConnection

from azq import _core
from azq.games.files import GameFiles
from azq.search.recomputation import Outputs
from azq.search.search import leaves_at_once
from azq.wire.arrays import pack_record, unpack_record
from azq.wire.codec import decode
from azq.wire.messages import GameRecord
from azq.wire.tabs import GROUP_UIDS, MATCHES, EvalGames, FromGateway, TabGame, luck_of


@dataclass
class MatchTab(SimulatedTab):
    """Plays a match's games with outputs that are all alike."""

    features: tuple[str, ...] = (MATCHES,)

    def _heed(self, socket: ClientConnection, heard: FromGateway) -> None:
        if not isinstance(heard, EvalGames):
            super()._heed(socket, heard)
            return
        games = play_match(heard, uniform(heard))
        self.finished.update((game.uid, game) for game in games)
        bring(socket, games)


def play_match(asked: EvalGames, evaluate: Callable[[int, NDArray[np.uint8]], Outputs]) -> list[TabGame]:
    """The games of a match, played to their ends; `evaluate` has the outputs of a version on packed observations."""
    told = asked.networks[0]
    game = GameFiles().load(told.game, told.params)
    width, depth = game.num_distinct_actions(), game.value_size()
    config = _core.SearchConfig(**asked.search)
    search = _core.Search(game, config, num_slots=len(asked.games), seed=int(asked.seed))
    for slot, handed in enumerate(asked.games):
        record = decode(handed.record, GameRecord) if handed.record else GameRecord(handed.uid)
        search.start(slot, luck_of(handed.uid), **unpack_record(record, width, depth))
    capacity = search.num_slots * leaves_at_once(config, game)
    packed, slots = np.zeros((capacity, game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    while leaves := search.collect(packed, slots):
        logits, values = np.zeros((leaves, width), np.float16), np.zeros((leaves, depth), np.float16)
        first = np.array([search.state(slot).current_player() == asked.games[slot].uid % GROUP_UIDS for slot in slots[:leaves]])
        for theirs, network in zip((first, ~first), asked.networks, strict=True):
            if theirs.any():
                logits[theirs], values[theirs] = evaluate(network.version, packed[:leaves][theirs])
        search.apply(logits, values)
    records = (msgspec.structs.replace(pack_record(search.record(slot)), uid=handed.uid) for slot, handed in enumerate(asked.games))
    return [brought(record, handed.ticket) for record, handed in zip(records, asked.games, strict=True)]


def uniform(asked: EvalGames) -> Callable[[int, NDArray[np.uint8]], Outputs]:
    """Outputs that are all alike, for `play_match`."""
    game = GameFiles().load(asked.networks[0].game, asked.networks[0].params)
    width, depth = game.num_distinct_actions(), game.value_size()
    return lambda _, packed: (np.zeros((len(packed), width), np.float16), np.zeros((len(packed), depth), np.float16))
