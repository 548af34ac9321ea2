"""Games that drills play: one that is sound, one of which single games kill whoever plays them, one that kills whoever loads it.

Each system gets a copy of this file in a folder of its own, for no host runs games out of Python's own folders.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

ACTIONS = 6
PLIES = 8
DEALS = 2000
ARMED = "armed"  # a file beside this one
HERE = Path(__file__).parent
DEATH = 139  # as a shell says of a process that died of SIGSEGV


class Sound:
    """Chance deals a number, then two players name one in turn; where the sum is even the first one wins."""

    def __init__(self) -> None:
        self.deal = -1
        self.said: list[int] = []

    def clone(self) -> Sound:
        twin = type(self)()
        twin.deal, twin.said = self.deal, list(self.said)
        return twin

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return ACTIONS

    def max_game_length(self) -> int:
        return 1 + PLIES

    def is_chance_node(self) -> bool:
        return self.deal < 0

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return [(deal, 1 / DEALS) for deal in range(DEALS)]

    def current_player(self) -> int:
        return len(self.said) % 2

    def legal_actions(self) -> list[int]:
        return list(range(ACTIONS))

    def apply_action(self, action: int) -> None:
        if self.is_chance_node():
            self.deal = action
        else:
            self.said.append(action)

    def is_terminal(self) -> bool:
        return len(self.said) == PLIES

    def returns(self) -> list[float]:
        return [-1.0, 1.0] if (self.deal + sum(self.said)) % 2 else [1.0, -1.0]

    def observation_tensor(self, player: int) -> list[int]:
        said = [int(place < len(self.said) and self.said[place] == action) for place in range(PLIES) for action in range(ACTIONS)]
        return [*said, self.deal % 2]

    def __str__(self) -> str:
        return f"deal {self.deal}, said {self.said}"


class Deadly(Sound):
    """Once it is armed, the first deal that a worker plays three plies of kills whoever plays it again."""

    def apply_action(self, action: int) -> None:
        super().apply_action(action)
        if len(self.said) == 3 and "worker" in sys.argv and self._kills():  # the learner only looks at finished games
            os._exit(DEATH)

    def _kills(self) -> bool:
        victim = HERE / f"victim-{self.deal}"
        with contextlib.suppress(FileNotFoundError):
            (HERE / ARMED).rename(victim)
        return victim.exists()


class Stillborn(Sound):
    """Kills the process that makes one."""

    def __init__(self) -> None:
        os._exit(DEATH)
