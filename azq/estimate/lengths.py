"""How long a run's games are, and how large: a few played to their end with the run's search and a network that knows nothing.

Games that end while a thousand are in flight for some seconds are the short ones, so they cannot tell.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from azq.actor.groups import GameGroup
from azq.bench.rig import rules
from azq.clock import now_ms
from azq.config import RunSections
from azq.replay.samples import count_samples
from azq.search.evaluator import UniformEvaluator
from azq.search.search import exploring, leaves_at_once, make_search
from azq.wire.arrays import pack_record
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

if TYPE_CHECKING:
    from collections.abc import Callable

GAMES = 64
LEAST_ENDED = 0.9  # of them: those that have not ended are long ones


class GameSize(NamedTuple):
    """Means over games."""

    samples: float
    plies: float  # decided by players, random opening plies among them
    record_bytes: float
    simulations: float


def game_size(sections: RunSections, seconds: float, clock: Callable[[], float] = time.monotonic) -> GameSize | None:
    """Of games played for at most so long; None where too few ended."""
    game = rules(sections)
    config = exploring(sections.search, random_opening_plies=sections.selfplay.random_opening_plies)
    group = GameGroup(make_search(game, config, num_slots=GAMES, seed=sections.run.seed), game, leaves_at_once(sections.search, game))
    for slot in range(GAMES):
        group.start(slot, GameRecord(slot + 1))
    evaluator, end_s = UniformEvaluator(game.num_distinct_actions(), game.value_size()), clock() + seconds
    while clock() < end_s and (leaves := group.advance()):
        group.apply(evaluator.result(evaluator.submit(group.asked()[0][:leaves]), timeout_s=0.0))
    ended = [SampleEvent(pack_record(record), tuple(map(float, record.returns)), "", now_ms()) for record in group.finished()]
    plies, simulations = group.search.plies, group.search.simulations
    group.drop()
    samples = sum(map(count_samples, ended))
    if len(ended) < LEAST_ENDED * GAMES or not samples:
        return None
    record_bytes = sum(len(encode(event)) for event in ended) / len(ended)
    played = 1 - sections.selfplay.fork_share / 2  # a game that begins anywhere in another one has half of it to go, as a mean
    return GameSize(played * samples / len(ended), played * plies / GAMES, record_bytes, played * simulations / GAMES)
