"""Games that begin in the middle of others: the first plies of a game that ended lately, cut anywhere, and a random move from there.

Good play alone leads to few boards, random plies to boards that good play never meets; what follows a wrong move in good play is between
the two. Go-Exploit: Trudeau and Bowling, arXiv:2302.12359, section 4; forks: Wu, arXiv:1902.10565, appendix D.
"""

from __future__ import annotations

import random
from collections import deque

import numpy as np

from azq.games import Game
from azq.wire.arrays import unsearched_record
from azq.wire.messages import GameRecord

KEPT = 5_000  # games: what the network plays by now, not what its first versions did


class Forks:
    """The newest games of a process, and the share of new ones that begin with a part of one of them."""

    def __init__(self, share: float, seed: int | None = None) -> None:
        self._share = share
        self._random = random.Random(seed)
        self._games: deque[bytes] = deque(maxlen=KEPT)

    def keep(self, record: GameRecord) -> None:
        """A game that ended."""
        if self._share:
            self._games.append(record.actions)

    def begin(self, game: Game, record: GameRecord) -> GameRecord:
        """The game to play: as it is given where it has plies already or is none of the share, else with the plies to begin with."""
        if record.actions or not self._games or self._random.random() >= self._share:
            return record
        source = np.frombuffer(self._random.choice(self._games), "<u2").tolist()
        actions = source[: self._random.randrange(len(source))]
        state = game.new_initial_state()
        for action in actions:
            state.apply_action(action)
        if not state.is_chance_node():
            actions.append(self._random.choice(state.legal_actions()))
        return unsearched_record(record.uid, actions, game.num_distinct_actions(), game.value_size())
