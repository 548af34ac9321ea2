"""Games with a fault each, for what names the fault: two players choose in turn among numbers, whose worth changes from ply to ply."""

from __future__ import annotations

WIDTH, PLIES = 5, 12


class Counters:
    """Twelve plies; an action is worth what it and the ply make of it, and nobody repeats the last two."""

    def __init__(self) -> None:
        self.played: list[int] = []

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return WIDTH

    def max_game_length(self) -> int:
        return PLIES

    def current_player(self) -> int:
        return len(self.played) % 2

    def legal_actions(self) -> list[int]:
        return [action for action in range(WIDTH) if self.played[-2:].count(action) == 0] or list(range(WIDTH))

    def apply_action(self, action: int) -> None:
        self.played.append(action)

    def is_terminal(self) -> bool:
        return len(self.played) >= PLIES

    def _lead(self) -> int:
        """Of the first player."""
        worths = [(action * (ply + 3)) % 7 for ply, action in enumerate(self.played)]
        return sum(worths[::2]) - sum(worths[1::2])

    def returns(self) -> list[float]:
        lead = self._lead()
        return [1.0, -1.0] if lead > 0 else [-1.0, 1.0] if lead < 0 else [0.0, 0.0]

    def observation_tensor(self, player: int) -> list[int]:
        cells = [0] * (PLIES * (WIDTH + 1))
        for ply, action in enumerate(self.played):
            cells[ply * (WIDTH + 1) + action] = 1
        return cells


class Prizeless(Counters):
    """Nobody ever gets anything."""

    def returns(self) -> list[float]:
        return [0.0, 0.0]


class Blind(Counters):
    """Every position looks the same."""

    def observation_tensor(self, player: int) -> list[int]:
        return [1] * WIDTH


class Drawish(Counters):
    """A lead is enough to win that comes once in hundreds of games."""

    def returns(self) -> list[float]:
        return [1.0, -1.0] if self._lead() > 17 else [-1.0, 1.0] if self._lead() < -17 else [0.0, 0.0]


class OneSided(Counters):
    """The second player wins by an advantage that nobody catches up with."""

    def returns(self) -> list[float]:
        return [1.0, -1.0] if self._lead() > 40 else [-1.0, 1.0]


class Capped(Counters):
    """Cut off after so many plies, without a winner, unless somebody leads by far."""

    def __init__(self, max_plies: int = 5) -> None:
        super().__init__()
        self.max_plies = max_plies

    def is_terminal(self) -> bool:
        return len(self.played) >= self.max_plies or abs(self._lead()) > 8

    def returns(self) -> list[float]:
        return super().returns() if abs(self._lead()) > 8 else [0.0, 0.0]
