"""How many games a group of a self-play slice holds at once. Pure."""

from __future__ import annotations

FIRST_GAMES = 64  # before any evaluation has come
FEWEST_GAMES = 16
SHARE = 0.1  # of one answer in the running mean


class Width:
    """As many games as are evaluated within a time: where evaluations are slow, a few games come to their end and many hardly move.

    With 0 seconds as many as there are slots, whatever evaluations take.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._a_game_s: float | None = None  # from asking to the answer, by the games that asked

    def games(self, slots: int) -> int:
        """Of a group that has room for so many."""
        if not self._within_s:
            return slots
        wanted = FIRST_GAMES if self._a_game_s is None else max(FEWEST_GAMES, round(self._within_s / self._a_game_s))
        return min(slots, wanted)

    def answered(self, games: int, after_s: float) -> None:
        """Notes a request of a group of so many games."""
        one_s = max(after_s, 1e-6) / max(games, 1)
        self._a_game_s = one_s if self._a_game_s is None else self._a_game_s + SHARE * (one_s - self._a_game_s)
