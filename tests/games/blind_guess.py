"""A coin that only player 1 sees: 0 passes, 1 passes, 0 guesses it. Worth nothing to him who does not peek."""

from __future__ import annotations

from collections.abc import Callable


class BlindGuess:
    """Moves: of player 0, of player 1 (no choice), the guess."""

    def __init__(self) -> None:
        self.coin: int | None = None
        self.moves: list[int] = []

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return 2

    def is_chance_node(self) -> bool:
        return self.coin is None

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return [(0, 0.5), (1, 0.5)]

    def current_player(self) -> int:
        return (0, 1, 0)[len(self.moves)]

    def legal_actions(self) -> list[int]:
        return [0] if len(self.moves) == 1 else [0, 1]

    def apply_action(self, action: int) -> None:
        if self.coin is None:
            self.coin = action
        else:
            self.moves.append(action)

    def is_terminal(self) -> bool:
        return len(self.moves) == 3

    def returns(self) -> list[float]:
        right = 1.0 if self.moves[2] == self.coin else -1.0
        return [right, -right]

    def observation_tensor(self, player: int) -> list[int]:
        seen = [int(self.coin == side) for side in (0, 1)] if player == 1 else [0, 0]
        return seen + [int(len(self.moves) > ply) for ply in range(3)] + [int(1 in self.moves[ply : ply + 1]) for ply in range(3)]

    def information_state_string(self, player: int) -> str:
        return f"{self.coin if player == 1 else '?'} {self.moves}"

    def resample_from_infostate(self, player: int, rng: Callable[[], float]) -> BlindGuess:
        twin = BlindGuess()
        twin.coin, twin.moves = (int(rng() * 2) if player == 0 else self.coin), list(self.moves)
        return twin
