"""Nim with one heap: take one to three sticks; whoever takes the last one wins. A complete game of azq in one Python file."""

from __future__ import annotations


class Nim:
    """One heap of `heap` sticks."""

    def __init__(self, heap: int = 15) -> None:
        self.heap = self.left = heap
        self.player = 0

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return 3  # action a takes a + 1 sticks

    def current_player(self) -> int:
        return self.player

    def legal_actions(self) -> list[int]:
        return [action for action in range(3) if action < self.left]

    def apply_action(self, action: int) -> None:
        self.left -= action + 1
        self.player = 1 - self.player

    def is_terminal(self) -> bool:
        return self.left == 0

    def returns(self) -> list[float]:
        return [-1.0, 1.0] if self.player == 0 else [1.0, -1.0]  # whoever is to move found the heap empty

    def observation_tensor(self, player: int) -> list[int]:
        return [int(stick < self.left) for stick in range(self.heap)]

    def action_to_string(self, action: int) -> str:
        return f"take {action + 1}"

    def __str__(self) -> str:
        return f"{self.left} sticks, player {self.player} to move"
