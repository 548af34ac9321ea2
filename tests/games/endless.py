"""A game that breaks its word: it says that it ends after eight plies, and goes on for ever where the first action was 1."""

from __future__ import annotations


class Endless:
    """Two players add sticks; after eight plies the second one wins, if they end at all."""

    def __init__(self) -> None:
        self.played: list[int] = []

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return 2

    def max_game_length(self) -> int:
        return 8

    def current_player(self) -> int:
        return len(self.played) % 2

    def legal_actions(self) -> list[int]:
        return [0, 1]

    def apply_action(self, action: int) -> None:
        self.played.append(action)

    def is_terminal(self) -> bool:
        return len(self.played) >= 8 and self.played[0] == 0

    def returns(self) -> list[float]:
        return [-1.0, 1.0]

    def observation_tensor(self, player: int) -> list[int]:
        return [int(ply < len(self.played) and self.played[ply] == 1) for ply in range(8)]
