"""How many games a group of a self-play slice holds at once. Pure."""

from __future__ import annotations

FIRST_GAMES = 64
FEWEST_GAMES = 16
SHARE = 0.1  # of one answer in the running mean


class Width:
    """As many games as are evaluated within a time: where evaluations are slow, a few games come to their end and many hardly move.

    With 0 seconds as many as there are slots, whatever evaluations take.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._a_game_s = within_s / FIRST_GAMES  # from asking to the answer, by the games of the group

    def games(self, slots: int) -> int:
        """Of a group that has room for so many."""
        return min(slots, max(FEWEST_GAMES, round(self._within_s / self._a_game_s))) if self._within_s else slots

    def answered(self, games: int, after_s: float) -> None:
        """Notes a request of a group of so many games; a first one, all of whose games are at the same position, says little."""
        self._a_game_s += SHARE * (max(after_s, 1e-6) / max(games, 1) - self._a_game_s)
